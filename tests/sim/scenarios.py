"""The kinds of schedules, and what must occur in a hundred of them.

Two search at random; each aim is one more, whose only fault is its story.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.sim import assigning, deleting, effects, resizing, swarm
from tests.sim.aims import AIMS
from tests.sim.assigning import AssigningSchedule
from tests.sim.deleting import DeletingSchedule
from tests.sim.resizing import ResizeSchedule
from tests.sim.schedule import Schedule
from tests.sim.small_steps import SmallStepsSchedule
from tests.sim.swarm import SwarmSchedule


@dataclass(frozen=True)
class Scenario:
    """One kind. `silent` names what never happened in so many schedules although it should have."""

    schedule: Callable[[int], Schedule]
    silent: Callable[[Counter[str], int], list[str]]


SCENARIOS: Final[dict[str, Scenario]] = {
    "everything": Scenario(Schedule, effects.silent),
    "resize": Scenario(ResizeSchedule, resizing.silent),
    "assigning": Scenario(AssigningSchedule, assigning.silent),
    "deleting": Scenario(DeletingSchedule, deleting.silent),
    "swarm": Scenario(SwarmSchedule, swarm.silent),
    "small-steps": Scenario(SmallStepsSchedule, swarm.silent),
}


def _silent(story: str, fired: Counter[str], schedules: int) -> list[str]:
    return effects.missing([f"fault: {story}"], fired, schedules)


for _name, _aim in AIMS.items():
    _kind = AssigningSchedule if _aim.assigning else ResizeSchedule if _aim.resizing else Schedule
    SCENARIOS[_name] = Scenario(partial(_kind, aim=_aim), partial(_silent, _name))
