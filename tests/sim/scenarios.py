"""The kinds of schedules there are: what runs, and what must have happened in a hundred of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.sim import effects, resizing
from tests.sim.resizing import ResizeSchedule
from tests.sim.schedule import Schedule


@dataclass(frozen=True)
class Scenario:
    """One kind. `silent` names what never happened although it should have."""

    schedule: Callable[[int], Schedule]
    silent: Callable[[Counter[str]], list[str]]


SCENARIOS: Final = {
    "everything": Scenario(Schedule, effects.silent),
    "resize": Scenario(ResizeSchedule, resizing.silent),
}
