"""Each invariant has checkers, and counts their events."""

from __future__ import annotations

import pytest

from anabranch.chaos.checkers import brokers, data_plane, order, resizes
from anabranch.chaos.checkers.invariants import INVARIANTS, LIVENESS, PROGRESS, Invariant
from anabranch.chaos.history import Delivery, History, Send, StateWritten, Stored
from tests.chaos.checkers.story import P

CHECKERS = {PROGRESS, LIVENESS} | {name for module in (brokers, data_plane, order, resizes) for name in module.CHECKERS}


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda one: one.name)
def test_invariant_has_checkers_and_empty_history_is_no_evidence(invariant: Invariant) -> None:
    assert set(invariant.checkers) <= CHECKERS
    assert invariant.evidence(History()) == 0, "a run in which nothing happened proves nothing"


def evidence(history: History) -> set[str]:
    return {one.name.split()[0] for one in INVARIANTS if one.evidence(history)}


def test_history_counts_as_evidence_for_its_invariants() -> None:
    assert evidence(History(stored=[Stored(P, 0, 1, "k", "v")])) == {"I0", "I1", "I12"}
    unanswered, acknowledged = Send(0, "p", "k", 0, "v"), Send(0, "p", "k", 0, "v", outcome="ok", place=P, offset=0)
    assert evidence(History(sends=[unanswered])) == {"I3"}
    assert evidence(History(sends=[acknowledged])) == {"I3", "I6"}
    delivery = Delivery(0, "c", 0, P, 0, "k", "v", generation=0, group_generation=1)
    assert "I4'" not in evidence(History(deliveries=[delivery]))
    delivery.generation = 1
    assert {"I4", "I4'"} <= evidence(History(deliveries=[delivery]))
    sealed = StateWritten(0, P, 0, 1, 1, (1,), 1, 1, True)
    assert "I8" in evidence(History(states=[sealed]))
