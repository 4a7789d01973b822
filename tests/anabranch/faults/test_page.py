"""Goal: what these pages show is so: their tests pass, rules are rules, mistakes are refused so."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from anabranch.commands.faults import command
from anabranch.faults.checking import check
from anabranch.faults.rule_file import read_rules
from anabranch.faults.rule_json import BadRule, from_json

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/faults.md").read_text()


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("page", "tests"),
    [("docs/faults.md", 5), ("docs/testing.md", 6), ("docs/clock.md", 3), ("docs/state.md", 4), ("docs/proxy.md", 1)],
)
def test_its_tests_pass(page: str, tests: int, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers")
    shown = blocks("python", (ROOT / page).read_text())
    for number, code in enumerate(shown):
        (tmp_path / f"test_{number}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{tests} passed" in done.stdout, done.stdout + done.stderr


def test_its_files_hold_rules(tmp_path: Path) -> None:
    for content in blocks("toml"):
        (tmp_path / "rules.toml").write_text(content)
        for rule in read_rules(tmp_path / "rules.toml"):
            check(rule, (1, 2, 3))


def said(typed: str) -> dict[str, Any]:
    """The rule that a command adds."""
    context = click.Context(command)
    words = shlex.split(typed)
    add = command.get_command(context, words[2])
    assert add is not None
    given = add.make_context("add", words[3:], parent=context).params
    return {name: one for name, one in given.items() if one not in (None, (), False) and name not in ("url", "token")}


COMMANDS = re.findall(r"^\$ (anabranch faults add .+)\n(.*)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("typed", "told"), COMMANDS, ids=[one for one, _ in COMMANDS])
def test_its_commands_are_answered_so(typed: str, told: str) -> None:
    if not told.startswith("Error: "):
        check(from_json(said(typed)), (1, 2, 3))
        return
    with pytest.raises(BadRule) as refused:
        check(from_json(said(typed)), (1, 2, 3))
    assert str(refused.value).startswith(told.removeprefix("Error: ").removesuffix("..."))
