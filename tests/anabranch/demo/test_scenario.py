"""The results that a demo needs to pass."""

from __future__ import annotations

import pytest

from anabranch.demo.scenario import failures
from tests.anabranch.demo.test_progress import judged


def test_demonstration_passes_only_with_clean_job_and_violations_in_control() -> None:
    assert failures(judged("job"), judged("control", out_of_order=3)) == []


@pytest.mark.parametrize("change", [{"out_of_order": 1}, {"lost": 1}, {"repeated": 1}, {"delivered": 9}])
def test_any_violation_fails_the_demonstration(change: dict[str, int]) -> None:
    assert len(failures(judged("job", **change), judged("control", out_of_order=3))) == 1


def test_clean_control_run_fails_the_demonstration() -> None:
    (reason,) = failures(judged("job"), judged("control"))
    assert "does not work" in reason


def test_unjudged_job_fails_the_demonstration() -> None:
    story = judged("job")
    story.verdict = {}
    assert len(failures(story, judged("control", out_of_order=3))) == 4
