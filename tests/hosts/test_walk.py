"""The walk of docs/hosts.md, with TLS and tokens on every door, a host that is cut off, and the audit by Spark."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import pytest

from anabranch.cluster import local_zookeeper
from anabranch.spark_jobs import java
from tests.hosts import walk
from tests.hosts.network import why_unavailable

ROOT = Path(__file__).parents[2]
REPEATED = frozenset({"servers", "hosts"})
"""The placeholders of the walk that stand for several words."""
NOT_ON_THE_PAGE = ("anabranch control state", "anabranch faults list")
"""Commands of the walk that check refusals and counts."""


def placeholder(node: ast.expr) -> str:
    """Return the pattern of what replaces a placeholder: one value, unless it stands for several words."""
    return ".+" if isinstance(node, ast.Name) and node.id in REPEATED else r"[^\s-]\S*(?: \S+\))?"


def walked() -> list[str]:
    """Return a pattern for each command of the walk."""
    patterns = []
    tree = ast.parse(Path(walk.__file__).read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in inside or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        pattern = "".join(
            re.escape(str(part.value))
            if isinstance(part, ast.Constant)
            else placeholder(part.value)
            if isinstance(part, ast.FormattedValue)
            else ""
            for part in parts
        )
        if pattern.startswith(r"anabranch\ ") and not pattern.startswith(tuple(map(re.escape, NOT_ON_THE_PAGE))):
            patterns.append(pattern)
    return patterns


def written() -> list[str]:
    """Return the commands of the page."""
    page = (ROOT / "docs/hosts.md").read_text()
    lines = re.findall(r"^\$ (anabranch .*)$", page, flags=re.MULTILINE)
    return [line.replace("'", "") for line in lines]


def test_page_about_several_machines_has_the_commands_of_the_walk() -> None:
    commands, patterns = written(), walked()
    assert len(commands) > 15
    assert [one for one in commands if not any(re.fullmatch(pattern, one) for pattern in patterns)] == []
    assert [one for one in patterns if not any(re.fullmatch(one, command) for command in commands)] == []


@pytest.mark.hosts
@pytest.mark.zookeeper
@pytest.mark.processes
@pytest.mark.spark_cluster
def test_walk_of_the_page_about_several_machines_ends_with_a_clean_audit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not os.environ.get("ANABRANCH_SPARK_CLUSTER"):
        pytest.skip("NO WALK OVER HOSTS: it takes minutes; `make audit-cluster` runs it")
    for reason in (why_unavailable(), local_zookeeper.why_unavailable(), java.why_missing()):
        if reason:
            pytest.skip(f"NO WALK OVER HOSTS: {reason}")
    with capsys.disabled():
        walk.main(tmp_path)
