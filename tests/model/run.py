"""A run of the models, and its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.model.explorer import Outcome

Script = tuple[tuple[int, ...], tuple[int, ...]]
"""The partition counts in turn, and the hashes of the keys that are watched. The odd part of the first is the base."""
Produced = tuple[tuple[int, int], ...]
Explore = Callable[[], Iterator[Outcome]]


@dataclass(frozen=True, slots=True)
class Run:
    """One line of the table."""

    name: str
    explore: Explore
    finds: str = "OK"
    """The invariant that has to be broken in at least one instance, or OK for none."""
    slow: bool = False

    def result(self) -> Result:
        """Explore every instance; keep the shortest story of what went wrong."""
        begun = time.process_time()
        instances = states = wrong = 0
        worst: Outcome | None = None
        for outcome in self.explore():
            instances += 1
            states += outcome.states
            if outcome.violation is not None:
                wrong += 1
                if worst is None or len(outcome.story) < len(worst.story):
                    worst = outcome
        return Result(self, instances, states, wrong, worst, time.process_time() - begun)


@dataclass(frozen=True, slots=True)
class Result:
    """What exploring a run found."""

    run: Run
    instances: int
    states: int
    wrong: int
    worst: Outcome | None
    seconds: float
    """Of processor time."""

    @property
    def as_expected(self) -> bool:
        """Whether the rules held, or the defect was found."""
        return self.found == self.run.finds

    @property
    def found(self) -> str:
        """What the shortest story shows."""
        return self.worst.kind if self.worst else "OK"
