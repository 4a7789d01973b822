"""Costly tests: a run of all tests leaves them out, and every other run has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
INI: Final = """
[pytest]
testpaths = theirs
markers = costly
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""
TESTS: Final = """
import pytest

def test_cheap(): pass

@pytest.mark.costly
def test_costly(): pass
"""


@pytest.mark.parametrize(
    ("words", "passed"),
    [(("-n", "1"), 1), (("-n", "1", "--costly"), 2), (("theirs/test_it.py",), 2)],
)
def test_run_of_all_tests_leaves_costly_ones_out_and_says_so(
    words: tuple[str, ...], passed: int, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/test_it.py").write_text(TESTS)
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{passed} passed" in done.stdout, done.stdout + done.stderr
    assert ("LEFT OUT; `make test-all` runs them" in done.stdout) == (passed == 1)
