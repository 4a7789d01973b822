"""The results that a demo needs to pass."""

from __future__ import annotations

import pytest

from anabranch.demo.report import VIOLATIONS
from anabranch.demo.scenario import failures
from anabranch.spark_jobs.verdict import KINDS
from tests.anabranch.demo.test_progress import judged


def test_demonstration_passes_only_with_clean_job_and_violations_in_control() -> None:
    assert failures(judged("job"), judged("control", out_of_order=3)) == []


@pytest.mark.parametrize("change", [*({kind: 1} for kind in VIOLATIONS), {"delivered": 9}], ids=str)
def test_any_violation_fails_the_demonstration(change: dict[str, int]) -> None:
    assert len(failures(judged("job", **change), judged("control", out_of_order=3))) == 1


def test_every_kind_of_violation_is_one_of_the_demonstration() -> None:
    assert {*VIOLATIONS, "before_gate"} == {*KINDS}, "those before a gate count as out of order, too"


def test_clean_control_run_fails_the_demonstration() -> None:
    (reason,) = failures(judged("job"), judged("control"))
    assert "does not work" in reason


def test_unjudged_job_fails_the_demonstration() -> None:
    story = judged("job")
    story.verdict = {}
    assert len(failures(story, judged("control", out_of_order=3))) == 1 + len(VIOLATIONS)
