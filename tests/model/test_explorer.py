"""The search: it visits each state once, finds the shortest story, and counts on no fault.

It visits the same states as a plain search, which runs each step of each state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from anabranch.protocol.lineage import Lineage
from tests.model.assigning import Assigning
from tests.model.assigning import Faults as AssigningFaults
from tests.model.deleting import Deleting
from tests.model.delivery import Delivery, logs_of, with_tail
from tests.model.explorer import Forbidden, Model, Process, Steps, explore
from tests.model.leases import Leases
from tests.model.marking import Marking
from tests.model.marking import Rules as MarkingRules
from tests.model.production import Load, Production
from tests.model.resizing import Procedure, Resizing
from tests.model.sharing import Faults as SharingFaults
from tests.model.sharing import Sharing
from tests.model.verifying import Verifying

SPLIT = Lineage(1, list(enumerate((1, 2))))
SPLITS = Lineage(1, list(enumerate((1, 2, 4))))
LOGS = logs_of(SPLITS, ((0, 3), (1, 3), (2, 3)))


class Counter(NamedTuple):
    """Counts to three; a wrong turn at two ends in a place without exit."""

    at: int
    falls: int = 1
    """How often it may be pushed."""


class Counting:
    row_fields = ()
    fault_fields = ("falls",)

    def __init__(self, *, trap: bool = False, pushed: bool = False, forbidden: int = 99) -> None:
        self.trap, self.pushed, self.forbidden = trap, pushed, forbidden

    def initial(self) -> Counter:
        return Counter(0)

    def processes(self) -> list[Process[Counter]]:
        return [self._count, self._wait]

    def _count(self, state: Counter) -> Steps[Counter]:
        if state.at == self.forbidden:
            raise Forbidden("jump", "off: the edge")
        if 0 <= state.at < 3:
            yield f"count {state.at + 1}", state._replace(at=state.at + 1)
        if state.at == 2 and self.trap:
            yield "fall", state._replace(at=-1)
        if state.at == -1 and self.pushed and state.falls:
            yield "pushed", state._replace(at=3, falls=state.falls - 1)

    def _wait(self, state: Counter) -> Steps[Counter]:
        yield "wait", state

    def violation(self, state: Counter) -> str | None:
        return None

    def finished(self, state: Counter) -> bool:
        return state.at == 3


def test_a_search_visits_all_states_once() -> None:
    assert explore(Counting()).states == 4
    assert explore(Counting()).kind == "OK"


def test_a_search_finds_where_no_way_leads_on() -> None:
    found = explore(Counting(trap=True))
    assert found.kind == "stuck"
    assert found.story == ("count 1", "count 2", "fall")


def test_a_way_that_needs_a_fault_is_no_way() -> None:
    found = explore(Counting(trap=True, pushed=True))
    assert (found.kind, found.states, found.story) == ("stuck", 6, ("count 1", "count 2", "fall"))


def test_a_search_tells_the_shortest_way_to_what_is_forbidden() -> None:
    found = explore(Counting(forbidden=1))
    assert (found.kind, found.story) == ("off", ("count 1", "jump"))


def test_an_instance_that_is_too_large_says_so() -> None:
    assert explore(Counting(), states_max=2).kind == "too large"


@pytest.mark.parametrize(
    "model",
    [
        Production((1, 2, 1), Load((1, 1), lost_answers=1)),
        Production((2, 1), Load((1, 1), acks_all=False, failovers=1, transactional=True)),
        Delivery(SPLITS, with_tail(LOGS, 0, 1), crashes=1, coordinator_failovers=1),
        Assigning(SPLIT, logs_of(SPLIT, ((0, 1), (1, 1))), faults=AssigningFaults(1, 1, 0, 1)),
        Resizing(2, 5, Procedure(crashes=2, elections=2)),
        Resizing(4, 2, Procedure("published", crashes=0, elections=0)),
        Marking(MarkingRules(), resizes=1, crashes=1, others=1),
        Verifying((1, 2), Load((1, 1))),
        Leases(session=1, records=1),
        Sharing(faults=SharingFaults(1, 0, 1), extents=((0, 0),)),
        Deleting((1, 2, 1), 1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_search_visits_the_same_states_as_a_plain_one(model: Model[Any]) -> None:
    states = [model.initial()]
    seen = set(states)
    for state in states:  # which grows meanwhile
        for process in model.processes():
            for _, after in process(state):
                if after not in seen:
                    seen.add(after)
                    states.append(after)
    assert (explore(model).states, explore(model).kind) == (len(states), "OK")
