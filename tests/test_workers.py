"""Each group of tests exists: a renamed file would lose its Spark or its schedules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers import TOGETHER, group_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("prefix", TOGETHER)
def test_what_is_kept_together_exists(prefix: str) -> None:
    path, _, name = prefix.partition("::")
    assert (ROOT / path).exists()
    assert not name or f"\ndef {name}" in (ROOT / path).read_text()


def test_others_go_by_themselves() -> None:
    assert group_of("tests/model/test_models.py::test_a[b]") == "tests/model/test_models.py::test_a[b]"
    assert group_of("tests/sim/test_resizing.py::test_planted_defect_is_removed") == "simulation"
    assert group_of("tests/spark_jobs/test_lines.py::test_x") == "one Spark"
