"""What is said of tests that failed beside others, and when CI passes all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_run import EXIT_STATUS, FLAKY_MAX, second_run

ROOT = Path(__file__).parents[1]


def test_a_test_that_passes_alone_is_named_as_flaky() -> None:
    status, line = second_run(1, ["tests/test_a.py::test_b"], lambda names: 0)
    assert status == 0
    assert "FLAKY" in line and "tests/test_a.py::test_b" in line


def test_a_test_that_fails_again_has_failed() -> None:
    status, line = second_run(1, ["tests/test_a.py::test_b"], lambda names: 1)
    assert status == 1
    assert "FAILED TWICE" in line


@pytest.mark.parametrize("count", [0, FLAKY_MAX + 1])
def test_nothing_is_run_again_after_no_failed_test_or_after_many(count: int) -> None:
    ran = []
    status, line = second_run(1, [f"test_{n}" for n in range(count)], lambda names: ran.append(names) or 0)
    assert (status, ran) == (1, [])
    assert "NOTHING IS RUN AGAIN" in line


@pytest.mark.parametrize("status", [-1, 0, 2, 3])
def test_nothing_is_run_again_after_a_run_that_did_not_come_to_its_end(status: int) -> None:
    ended, line = second_run(status, ["tests/test_a.py::test_b"], lambda names: 0)
    assert ended == 1
    assert "NOTHING IS RUN AGAIN" in line


def test_a_run_notes_its_exit_status(tmp_path: Path) -> None:
    test = tmp_path / "test_one.py"
    test.write_text("def test_one():\n    assert False\n")
    conftest = tmp_path / "conftest.py"
    conftest.write_text("from tests.conftest import pytest_sessionfinish\n")
    words = [sys.executable, "-m", "pytest", "-q", f"--rootdir={tmp_path}", str(test)]
    subprocess.run(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
    assert json.loads((tmp_path / ".pytest_cache/v" / EXIT_STATUS).read_text()) == 1


def test_ci_forgets_the_failures_of_an_earlier_run_first() -> None:
    """Otherwise a failed check would be followed by the failed tests of another day, which may pass now."""
    lines = (ROOT / ".ci/run").read_text().splitlines()
    forgets = next(n for n, line in enumerate(lines) if line == "rm -rf .pytest_cache")
    tests = next(n for n, line in enumerate(lines) if line.rstrip("\\ ").endswith(" test"))
    again = next(n for n, line in enumerate(lines) if " again" in line)
    assert forgets < tests < again
