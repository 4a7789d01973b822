"""The walk of docs/hosts.md, whose commands are those of the page."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from anabranch.cluster import zookeeper
from anabranch.spark_jobs.java import why_missing
from tests.hosts import walk
from tests.hosts.network import why_unavailable

PAGE = Path(__file__).parents[2] / "docs" / "hosts.md"

pytestmark = [pytest.mark.hosts, pytest.mark.zookeeper, pytest.mark.processes, pytest.mark.spark_cluster]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The directories of the hosts."""
    if not os.environ.get("ANABRANCH_SPARK_CLUSTER"):
        pytest.skip("takes minutes; runs by `make audit-cluster`")
    for reason in (why_unavailable(), zookeeper.why_unavailable(), why_missing()):
        if reason:
            pytest.skip(f"NO WALK: {reason}")
    return tmp_path


def test_every_step_of_the_walk_ends_as_on_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    walk.main(folder)
    typed = re.findall(r"^  (?:one|client)(\$ .*?)(?:   \(.*\))?$", capsys.readouterr().out, re.MULTILINE)
    page = PAGE.read_text().replace("\\\n    ", "")
    assert [line for line in typed if line not in page] == []
