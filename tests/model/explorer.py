"""Breadth-first search through every state that a small model can reach.

A model says where it starts, what its processes may do next, what must never be, and when it is finished. The search
finds the shortest way to a forbidden state; failing that, it looks for states from which no way without a further fault
leads to a finished one (AG EF finished): a deadlock, or a livelock that fairness cannot end.

States are packed integers, and steps are remembered by what they read (`packing`). Of each step the search keeps the
number of the state after it, in four bytes; for a story it runs the steps again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tests.model.packing import Memo, Packing, View

State = TypeVar("State", bound=tuple[Any, ...])
Steps = Iterable[tuple[str, State]]
Process = Callable[[State], Steps[State]]


class Forbidden(Exception):
    """A step did what must never be done."""

    def __init__(self, action: str, reason: str) -> None:
        super().__init__(reason)
        self.action = action
        self.before: list[int] = []
        """The steps that the process may take instead, as differences of packed states."""


class Model(Protocol[State]):
    """The interface of a model. States are named tuples; the functions depend on nothing but the state."""

    @property
    def row_fields(self) -> Collection[str]:
        """The fields of a state that have one element for each partition, or member, or record."""

    @property
    def fault_fields(self) -> Collection[str]:
        """The fields of a state that count faults: a step that changes one is a fault, and nobody can rely on it."""

    def initial(self) -> State:
        """Where it starts."""

    def processes(self) -> Sequence[Process[State]]:
        """What each may do next: (what a reader calls it, the state after it). May raise Forbidden.

        The fewer fields one of them reads, the faster is the search.
        """

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


def explore(model: Model[State], *, states_max: int = 20_000_000) -> Outcome:
    """Visit every reachable state, up to `states_max`: 20 million need about 5 GB."""
    return _Search(model, states_max).run()


class _Search:
    """One search; states have numbers in the order in which they were found."""

    def __init__(self, model: Model[Any], states_max: int) -> None:
        initial = model.initial()
        self._packing = packing = Packing(initial, model.row_fields)
        self._states_max = states_max
        self._processes = model.processes()
        self._steps = [Memo(packing, _differences(process)) for process in self._processes]
        self._violation = Memo(packing, lambda view: model.violation(view) or "")
        self._is_finished = Memo(packing, model.finished)
        self._states = [packing.pack(initial)]
        self._numbers = {self._states[0]: 0}
        self._came_from = array("I", [0])
        self._leads_to, self._begin = array("I"), array("I", [0])
        """The numbers of the states after each state, one after another, and where those of each state begin."""
        self._may_finish = bytearray()
        self._faults = packing.mask(model.fault_fields)

    def run(self) -> Outcome:
        """Visit every state; then look for those that cannot finish."""
        violation, is_finished = self._violation, self._is_finished
        for number, state in enumerate(self._states):  # which grows meanwhile
            reason = violation.known.get(state & violation.mask)
            if violation(state) if reason is None else reason:
                return Outcome(len(self._states), violation(state), self._story(number))
            finished = is_finished.known.get(state & is_finished.mask)
            self._may_finish.append(is_finished(state) if finished is None else finished)
            try:
                self._visit(number, state)
            except Forbidden as found:
                states = {*self._numbers, *(state + difference for difference in found.before)}
                return Outcome(len(states), str(found), (*self._story(number), found.action))
            if len(self._states) > self._states_max:
                return Outcome(len(self._states), f"too large: more than {self._states_max} states, nothing is known")
        return self._stuck() or Outcome(len(self._states))

    def _visit(self, number: int, state: int) -> None:
        states, numbers, leads_to = self._states, self._numbers, self._leads_to
        for steps in self._steps:
            differences = steps.known.get(state & steps.mask)
            for difference in steps(state) if differences is None else differences:
                after = state + difference
                reached = numbers.get(after)
                if reached is None:
                    numbers[after] = reached = len(states)
                    states.append(after)
                    self._came_from.append(number)
                leads_to.append(reached)
        self._begin.append(len(leads_to))

    def _stuck(self) -> Outcome | None:
        """Whether a state cannot finish: ask each that is not known to, from the last to the first, until none can."""
        may, states, faults = self._may_finish, self._states, self._faults
        leads_to, begin = self._leads_to, self._begin
        found = True
        while found:
            found, number = False, may.rfind(0)
            while number >= 0:
                left = states[number] & faults
                for after in leads_to[begin[number] : begin[number + 1]]:
                    if may[after] and states[after] & faults == left:
                        may[number] = found = True
                        break
                number = may.rfind(0, 0, number)
        count = may.count(0)
        if not count:
            return None
        share = f"{count} of {len(may)} states cannot finish"
        return Outcome(len(may), f"stuck: {share}", self._story(may.find(0)))

    def _story(self, number: int) -> tuple[str, ...]:
        told = []
        while number:
            before = self._came_from[number]
            told.append(self._action(self._states[before], self._states[number]))
            number = before
        return tuple(reversed(told))

    def _action(self, before: int, after: int) -> str:
        for process in self._processes:
            for action, state in process(self._packing.unpack(before)):
                if self._packing.pack(state) == after:
                    return action
        raise AssertionError("a step was taken that no process takes")


def _differences(process: Callable[[Any], Steps[Any]]) -> Callable[[View], tuple[int, ...]]:
    def run(view: View) -> tuple[int, ...]:
        found: dict[int, None] = {}
        try:
            for _, after in process(view):
                found.setdefault(after.difference())
        except Forbidden as forbidden:
            forbidden.before = list(found)
            raise
        found.pop(0, None)  # nothing has changed
        return tuple(found)

    return run
