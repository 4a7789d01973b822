"""Breadth-first search through every state that a small model can reach.

A model says where it starts, what may happen next, what must never be, and when it is finished. The search finds the
shortest way to a forbidden state; failing that, it looks for states from which no way leads to a finished one (AG EF
finished): a deadlock, or a livelock that fairness cannot end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

State = TypeVar("State", bound=Hashable)
Item = TypeVar("Item")


class Forbidden(Exception):
    """A step did what must never be done."""

    def __init__(self, action: str, reason: str) -> None:
        super().__init__(reason)
        self.action = action


class Model(Protocol[State]):
    """The interface of a model."""

    def initial(self) -> State:
        """Where it starts."""

    def steps(self, state: State) -> Iterable[tuple[str, State]]:
        """What may happen next: (what a reader calls it, the state after it). May raise Forbidden."""

    def violation(self, state: State) -> str | None:
        """Why this state must never be; None if it may."""

    def finished(self, state: State) -> bool:
        """Whether everything that should happen has happened."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found: how many states, and the shortest story of what is wrong, if anything is."""

    states: int
    violation: str | None = None
    story: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The first word of the violation, or OK."""
        return self.violation.split(":")[0] if self.violation else "OK"

    def __str__(self) -> str:
        return f"{self.states} states, {self.violation or 'OK'}" + "".join(f"\n    {step}" for step in self.story)


def explore(model: Model[State], *, states_max: int = 2_000_000) -> Outcome:
    """Visit every reachable state. MemoryError above `states_max`: the instance is too large, nothing is known."""
    start = model.initial()
    came_from: dict[State, tuple[str, State] | None] = {start: None}
    leads_here: dict[State, list[State]] = {}
    finished: list[State] = []
    waiting = deque([start])

    def story(state: State, *last: str) -> tuple[str, ...]:
        told = list(reversed(last))
        step = came_from[state]
        while step is not None:
            told.append(step[0])
            step = came_from[step[1]]
        return tuple(reversed(told))

    while waiting:
        state = waiting.popleft()
        reason = model.violation(state)
        if reason is not None:
            return Outcome(len(came_from), reason, story(state))
        if model.finished(state):
            finished.append(state)
        try:
            for action, after in model.steps(state):
                leads_here.setdefault(after, []).append(state)
                if after not in came_from:
                    came_from[after] = (action, state)
                    waiting.append(after)
        except Forbidden as found:
            return Outcome(len(came_from), str(found), story(state, found.action))
        if len(came_from) > states_max:
            raise MemoryError(f"more than {states_max} states")

    hopeful = set(finished)
    while finished:
        for state in leads_here.get(finished.pop(), ()):
            if state not in hopeful:
                hopeful.add(state)
                finished.append(state)
    if len(hopeful) < len(came_from):
        hopeless = next(state for state in came_from if state not in hopeful)
        share = f"{len(came_from) - len(hopeful)} of {len(came_from)} states cannot finish"
        return Outcome(len(came_from), f"stuck: {share}", story(hopeless))
    return Outcome(len(came_from))


def replaced(values: tuple[Item, ...], index: int, value: Item) -> tuple[Item, ...]:
    """The tuple with one element changed."""
    return (*values[:index], value, *values[index + 1 :])
