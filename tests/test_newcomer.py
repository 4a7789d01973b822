"""The newcomer's walk finds what README.md and docs/testing.md promise."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.newcomer import FROM_GO, STEPS, WalkFailed, expect, table, walk_through


def test_each_step_shows_what_the_pages_promise(tmp_path: Path) -> None:
    steps = [name for name in STEPS if name != FROM_GO]
    walk = walk_through(tmp_path, here=True, steps=steps)
    assert list(walk.times_s) == ["cluster ready", *steps]
    assert len(table(walk).splitlines()) == 2 + len(steps)


@pytest.mark.interop
def test_a_go_test_meets_its_first_fault(tmp_path: Path) -> None:
    if "ANABRANCH_INTEROP" not in os.environ or shutil.which("go") is None:
        pytest.skip("THE NEWCOMER'S FAULT FROM GO WAS NOT TRIED: set ANABRANCH_INTEROP, and install Go")
    assert walk_through(tmp_path, here=True, steps=[FROM_GO]).skipped == {}


def test_another_output_ends_the_walk() -> None:
    expect("one two", "one", "two")
    with pytest.raises(WalkFailed, match="expected 'one'"):
        expect("two one", "two", "one", "one")
