"""The state machine of a transactional id: all valid transitions, and no others."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from anabranch.broker.coordinators.transactions.transactional_id import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    LEGAL,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    Transaction,
    TransactionState,
    Transition,
    is_epoch_exhausted,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.cases import for_each

MOVES: dict[TransactionState, Callable[[Transaction], Transition]] = {
    EMPTY: lambda one: one.prepare_next_epoch(timeout_ms=7, expected_epoch=None, now_ms=50),
    ONGOING: lambda one: one.prepare_add([("t", 1)], now_ms=50),
    PREPARE_COMMIT: lambda one: one.prepare_end(commit=True, now_ms=50),
    PREPARE_ABORT: lambda one: one.prepare_end(commit=False, now_ms=50),
    COMPLETE_COMMIT: lambda one: one.prepare_complete(now_ms=50),
    COMPLETE_ABORT: lambda one: one.prepare_complete(now_ms=50),
    DEAD: lambda one: one.prepare_dead(),
    PREPARE_EPOCH_FENCE: lambda one: one.prepare_fence(),
}


def transaction(state: TransactionState = EMPTY, **changes: object) -> Transaction:
    inside = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    return Transaction(
        **{
            "transactional_id": "tx",
            "producer_id": 1000,
            "producer_epoch": 3,
            "timeout_ms": 5,
            "state": state,
            "partitions": {("t", 0)} if inside else set(),
            "start_ms": 20 if inside else -1,
            "last_update_ms": 20,
        }
        | changes  # type: ignore[arg-type]
    )


@for_each(itertools.product(TransactionState, TransactionState))
def test_illegal_transition_is_refused(state: TransactionState, to: TransactionState) -> None:
    one = transaction(state)
    if to in (COMPLETE_COMMIT, COMPLETE_ABORT) and state in (PREPARE_COMMIT, PREPARE_ABORT):
        assert MOVES[to](one).state is (COMPLETE_COMMIT if state is PREPARE_COMMIT else COMPLETE_ABORT)
        return
    if to in LEGAL[state]:
        assert MOVES[to](one).state is to
        assert (one.state, one.pending) == (state, to), "prepared is not made"
        return
    with pytest.raises(AssertionError, match="is not a transition"):
        MOVES[to](one)
    assert one.pending is None


def test_legal_transitions_equal_kafkas() -> None:
    """`validPreviousStates` of Kafka 4.1; 3.9 has no empty aborts."""
    previous = {
        EMPTY: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
        ONGOING: {ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
        PREPARE_COMMIT: {ONGOING},
        PREPARE_ABORT: {ONGOING, PREPARE_EPOCH_FENCE, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
        COMPLETE_COMMIT: {PREPARE_COMMIT},
        COMPLETE_ABORT: {PREPARE_ABORT},
        DEAD: {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT},
        PREPARE_EPOCH_FENCE: {ONGOING},
    }
    assert {to: {state for state in LEGAL if to in LEGAL[state]} for to in TransactionState} == previous
    titles = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"]
    titles.append("PrepareEpochFence")
    assert [one.title for one in TransactionState] == titles
    assert [one.value for one in TransactionState] == list(range(8))


@pytest.mark.parametrize("first", sorted(LEGAL[ONGOING]))
def test_second_pending_transition_is_refused(first: TransactionState) -> None:
    one = transaction(ONGOING)
    MOVES[first](one)
    for second in LEGAL[ONGOING]:
        with pytest.raises(AssertionError, match="is in transition"):
            MOVES[second](one)


def test_transaction_passes_through_all_states() -> None:
    one = transaction(producer_epoch=-1)
    begin = MOVES[EMPTY](one)
    one.complete(begin)
    assert (one.state, one.producer_epoch, one.last_producer_epoch, one.timeout_ms) == (EMPTY, 0, -1, 7)
    one.complete(one.prepare_add([("t", 0), ("t", 1)], now_ms=60))
    one.complete(one.prepare_add([("u", 0)], now_ms=70))
    assert (one.state, one.start_ms, one.last_update_ms) == (ONGOING, 60, 70)
    one.complete(one.prepare_end(commit=True, now_ms=80))
    assert one.state is PREPARE_COMMIT and one.partitions == {("t", 0), ("t", 1), ("u", 0)}
    done = one.prepare_complete(now_ms=90)
    assert (done.state, done.partitions, done.start_ms) == (COMPLETE_COMMIT, frozenset(), 60)
    for partition in sorted(one.partitions):
        one.remove_partition(partition)
    one.complete(done)
    assert (one.state, one.pending, one.partitions, one.last_update_ms) == (COMPLETE_COMMIT, None, set(), 90)
    one.complete(one.prepare_add([("t", 1)], now_ms=100))
    assert (one.state, one.start_ms, one.partitions) == (ONGOING, 100, {("t", 1)})


def test_abandoned_transition_changes_nothing() -> None:
    one = transaction(ONGOING)
    move = one.prepare_add([("t", 1)], now_ms=60)
    one.abandon_transition(move)
    assert (one.state, one.pending, one.partitions, one.last_update_ms) == (ONGOING, None, {("t", 0)}, 20)
    with pytest.raises(AssertionError):
        one.complete(move)


def test_mismatched_transition_raises_an_assertion_error() -> None:
    one = transaction(ONGOING)
    move = one.prepare_end(commit=True, now_ms=60)
    one.partitions.add(("t", 9))
    with pytest.raises(AssertionError, match="cannot become"):
        one.complete(move)
    early = transaction(PREPARE_COMMIT)
    with pytest.raises(AssertionError, match="cannot become"):
        early.complete(early.prepare_complete(now_ms=60))
    with pytest.raises(AssertionError, match="has no decision"):
        transaction(ONGOING).remove_partition(("t", 0))
    dead = transaction()
    with pytest.raises(AssertionError, match="this state is never journaled"):
        dead.complete(dead.prepare_dead())


# --- epochs ----------------------------------------------------------------------------------------------------------


def test_new_producer_gets_the_next_epoch() -> None:
    for state in AT_REST:
        move = transaction(state).prepare_next_epoch(timeout_ms=9, expected_epoch=None, now_ms=60)
        assert (move.producer_id, move.producer_epoch, move.last_producer_epoch) == (1000, 4, -1)
        assert (move.state, move.timeout_ms, move.start_ms, move.last_update_ms) == (EMPTY, 9, -1, 60)


def test_continuing_producer_gets_the_next_epoch_once() -> None:
    one = transaction()
    one.complete(one.prepare_next_epoch(timeout_ms=5, expected_epoch=3, now_ms=60))
    assert (one.producer_epoch, one.last_producer_epoch) == (4, 3)
    again = one.prepare_next_epoch(timeout_ms=5, expected_epoch=3, now_ms=70)
    assert (again.producer_epoch, again.last_producer_epoch) == (4, 3), "the same answer to a repeated request"
    one.complete(again)
    for stale in (2, 5):
        with pytest.raises(KafkaError) as refused:
            one.prepare_next_epoch(timeout_ms=5, expected_epoch=stale, now_ms=80)
        assert refused.value.code is ErrorCode.PRODUCER_FENCED and one.pending is None
    one.complete(one.prepare_next_epoch(timeout_ms=5, expected_epoch=None, now_ms=90))
    with pytest.raises(KafkaError):
        one.prepare_next_epoch(timeout_ms=5, expected_epoch=4, now_ms=99)
    unknown = transaction(producer_epoch=-1)
    assert unknown.prepare_next_epoch(timeout_ms=5, expected_epoch=17, now_ms=60).producer_epoch == 0


def test_repeated_fence_after_a_failure_keeps_its_epoch() -> None:
    one = transaction(ONGOING)
    fence = one.prepare_fence()
    assert (fence.producer_epoch, fence.last_producer_epoch) == (4, -1)
    one.adopt_fence(fence.producer_epoch)
    assert (one.producer_epoch, one.pending) == (4, None), "the old producer is out at once"
    one.abandon_transition(one.prepare_end(commit=False, now_ms=60))
    one.fence_failed = True
    fence = one.prepare_fence()
    assert fence.producer_epoch == 4
    one.adopt_fence(4)
    one.complete(one.prepare_end(commit=False, now_ms=70))
    one.remove_partition(("t", 0))
    one.complete(one.prepare_complete(now_ms=80))
    assert (one.state, one.fence_failed) == (COMPLETE_ABORT, False)


def test_fence_before_an_abort_of_version_2_does_not_bump_the_epoch() -> None:
    one = transaction(ONGOING)
    one.prepare_fence()
    one.adopt_fence(None)
    assert (one.producer_epoch, one.pending) == (3, None)
    abort = one.prepare_end(commit=False, client_version=2, now_ms=60)
    assert (abort.producer_epoch, abort.last_producer_epoch) == (4, 3)


def test_exhausted_producer_id_is_replaced() -> None:
    assert [is_epoch_exhausted(epoch) for epoch in (-1, 32765, 32766, 32767)] == [False, False, True, True]
    one = transaction(producer_epoch=32765)
    one.complete(one.prepare_next_epoch(timeout_ms=5, expected_epoch=32765, now_ms=60))
    assert one.producer_epoch == 32766 and one.epoch_exhausted
    again = one.prepare_next_epoch(timeout_ms=5, expected_epoch=32765, now_ms=60)
    assert again.producer_epoch == 32766, "a repeated request, although there is no epoch left"
    one.abandon_transition(again)
    with pytest.raises(AssertionError, match="no epoch left"):
        one.prepare_next_epoch(timeout_ms=5, expected_epoch=None, now_ms=60)
    move = one.prepare_new_producer(2000, timeout_ms=6, remember_epoch=True, now_ms=70)
    one.complete(move)
    assert (one.producer_id, one.producer_epoch, one.timeout_ms) == (2000, 0, 6)
    assert (one.last_producer_id, one.last_producer_epoch) == (1000, 32766)
    fenced = transaction(ONGOING, producer_epoch=32766)
    assert fenced.prepare_fence().producer_epoch == 32767
    over = transaction(ONGOING, producer_epoch=32767)
    with pytest.raises(AssertionError, match="no epoch left"):
        over.prepare_fence()
