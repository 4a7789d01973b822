"""Breadth-first search through every state that a small model can reach.

A model says where it starts, what may happen next, what must never be, and when it is finished. The search finds the
shortest way to a forbidden state; failing that, it looks for states from which no way leads to a finished one (AG EF
finished): a deadlock, or a livelock that fairness cannot end.
"""

from __future__ import annotations

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
    states = [model.initial()]
    numbers = {states[0]: 0}  # a state is hashed once for each step that leads to it: most of a search's cost
    came_from: list[tuple[str, int]] = [("", 0)]
    leads_here: list[list[int]] = [[]]
    finished: list[int] = []

    def story(number: int, *last: str) -> tuple[str, ...]:
        told = list(reversed(last))
        while number:
            action, number = came_from[number]
            told.append(action)
        return tuple(reversed(told))

    for number, state in enumerate(states):  # which grows meanwhile
        reason = model.violation(state)
        if reason is not None:
            return Outcome(len(states), reason, story(number))
        if model.finished(state):
            finished.append(number)
        try:
            for action, after in model.steps(state):
                reached = numbers.setdefault(after, len(states))
                if reached == len(states):
                    states.append(after)
                    came_from.append((action, number))
                    leads_here.append([])
                leads_here[reached].append(number)
        except Forbidden as found:
            return Outcome(len(states), str(found), story(number, found.action))
        if len(states) > states_max:
            raise MemoryError(f"more than {states_max} states")

    hopeful = set(finished)
    while finished:
        for number in leads_here[finished.pop()]:
            if number not in hopeful:
                hopeful.add(number)
                finished.append(number)
    if len(hopeful) < len(states):
        hopeless = next(number for number in range(len(states)) if number not in hopeful)
        share = f"{len(states) - len(hopeful)} of {len(states)} states cannot finish"
        return Outcome(len(states), f"stuck: {share}", story(hopeless))
    return Outcome(len(states))


def replaced(values: tuple[Item, ...], index: int, value: Item) -> tuple[Item, ...]:
    """The tuple with one element changed."""
    return (*values[:index], value, *values[index + 1 :])
