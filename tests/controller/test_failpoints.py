"""Names of the controller's failpoints."""

from __future__ import annotations

import pytest

from anabranch.controller.failpoints import STEPS, step_of


@pytest.mark.parametrize("step", STEPS)
def test_failpoint_is_a_step_or_its_nth_time(step: str) -> None:
    assert step_of(step) == step_of(f"{step}:2") == step


@pytest.mark.parametrize("point", ["", "resize", "resize:after-bumps", "resize:after-bump:x", "elect:1:2"])
def test_unknown_step_is_refused_with_list_of_steps(point: str) -> None:
    with pytest.raises(KeyError, match=r"is not a step of the controller; the steps are .*resize:after-bump"):
        step_of(point)
