"""Each request in each state: the responses of Kafka's TransactionCoordinator, as tables."""

from __future__ import annotations

from itertools import product

import pytest

from anabranch.broker.coordinators.transactions import transaction_requests as requests
from anabranch.broker.coordinators.transactions.transaction_requests import Producer
from anabranch.broker.coordinators.transactions.transactional_id import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREPARED,
    Transaction,
    TransactionState,
    Transition,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.transactions.test_transactional_id import transaction
from tests.cases import for_each

ME = Producer(1000, 3)
STATES = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]
NONE, CONCURRENT, INVALID = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
FENCED, MAPPING = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
Outcome = TransactionState | ErrorCode
"""Where a request leads, or what it is answered without leading anywhere."""


def add(one: Transaction, producer: Producer = ME, *indexes: int) -> Outcome:
    return outcome(one, lambda: requests.add_partitions(one, producer, [("t", i) for i in indexes], now_ms=50))


def end(one: Transaction, producer: Producer = ME, *, commit: bool = True) -> Outcome:
    return outcome(one, lambda: requests.end(one, producer, commit=commit, now_ms=50))


def init(one: Transaction, expected: Producer | None = None, new_producer_id: int | None = None) -> Outcome:
    return outcome(
        one,
        lambda: requests.init_producer_id(one, expected, timeout_ms=9, new_producer_id=new_producer_id, now_ms=50),
    )


def outcome(one: Transaction, ask: object) -> Outcome:
    before = (one.state, one.pending, one.producer_epoch)
    try:
        move: Transition | None = ask()  # type: ignore[operator]
    except KafkaError as error:
        assert (one.state, one.pending, one.producer_epoch) == before, "a refused request leaves no trace"
        return error.code
    return NONE if move is None else move.state


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        (EMPTY, ONGOING),
        (ONGOING, ONGOING),
        (COMPLETE_COMMIT, ONGOING),
        (COMPLETE_ABORT, ONGOING),
        (PREPARE_COMMIT, CONCURRENT),
        (PREPARE_ABORT, CONCURRENT),
    ],
)
def test_add_partitions_is_answered_by_state(state: TransactionState, answer: Outcome) -> None:
    assert add(transaction(state), ME, 0, 1) == answer


def test_adding_known_partitions_writes_no_record() -> None:
    assert add(transaction(ONGOING), ME, 0) is NONE
    assert add(transaction(ONGOING), ME) is NONE
    assert add(transaction(EMPTY), ME) is ONGOING, "no partition at all begins a transaction, as in Kafka"


@pytest.mark.parametrize(
    ("state", "commit", "answer"),
    [
        (EMPTY, True, INVALID),
        (EMPTY, False, INVALID),
        (ONGOING, True, PREPARE_COMMIT),
        (ONGOING, False, PREPARE_ABORT),
        (PREPARE_COMMIT, True, CONCURRENT),
        (PREPARE_COMMIT, False, INVALID),
        (PREPARE_ABORT, True, INVALID),
        (PREPARE_ABORT, False, CONCURRENT),
        (COMPLETE_COMMIT, True, NONE),
        (COMPLETE_COMMIT, False, INVALID),
        (COMPLETE_ABORT, True, INVALID),
        (COMPLETE_ABORT, False, NONE),
    ],
)
def test_end_is_answered_by_state(state: TransactionState, commit: bool, answer: Outcome) -> None:
    assert end(transaction(state), commit=commit) == answer


@pytest.mark.parametrize("state", STATES)
def test_request_of_another_producer_is_refused(state: TransactionState) -> None:
    """The producer id is checked first, then its epoch; any other epoch is fenced, also a later one."""
    for wrong, answer in ((Producer(999, 3), MAPPING), (Producer(1000, 2), FENCED), (Producer(1000, 4), FENCED)):
        assert add(transaction(state), wrong, 1) == answer
        assert end(transaction(state), wrong) == answer
        busy = transaction(state, pending=EMPTY)
        assert add(busy, wrong, 1) == answer and end(busy, wrong) == answer
        with pytest.raises(KafkaError) as refused:
            requests.check_member(transaction(state), wrong)
        assert refused.value.code is answer


@for_each(product(STATES, [one for one in TransactionState if one is not PREPARE_EPOCH_FENCE]))
def test_request_during_a_pending_transition_is_concurrent(state: TransactionState, pending: TransactionState) -> None:
    busy = transaction(state, pending=pending)
    assert add(busy, ME, 1) is CONCURRENT and add(busy, ME, 0) is CONCURRENT
    assert end(busy) is end(busy, commit=False) is CONCURRENT
    assert init(busy) is init(busy, Producer(1000, 3)) is init(busy, Producer(7, 7)) is CONCURRENT
    assert not requests.wants_new_producer_id(transaction(state, pending=pending, producer_epoch=32766), None)
    assert not requests.has_timed_out(busy, 10**9)


@for_each(product(STATES, TransactionState))
def test_add_while_transition_is_pending_is_concurrent_if_pending_is_tested_first(
    state: TransactionState, pending: TransactionState
) -> None:
    for producer in (ME, Producer(999, 3), Producer(1000, 2), Producer(1000, 4)):
        busy = transaction(state, pending=pending)
        with pytest.raises(KafkaError) as refused:
            requests.add_partitions(busy, producer, [("t", 1)], pending_first=True, now_ms=50)
        assert refused.value.code is CONCURRENT


@pytest.mark.parametrize("state", STATES)
def test_add_by_another_producer_is_refused_if_nothing_is_pending(state: TransactionState) -> None:
    for producer, answer in ((Producer(999, 3), MAPPING), (Producer(1000, 2), FENCED), (Producer(1000, 4), FENCED)):
        with pytest.raises(KafkaError) as refused:
            requests.add_partitions(transaction(state), producer, [("t", 1)], pending_first=True, now_ms=50)
        assert refused.value.code is answer


@pytest.mark.parametrize("state", STATES)
def test_verification_is_concurrent_in_prepared_states_only(state: TransactionState) -> None:
    if state in PREPARED:
        with pytest.raises(KafkaError) as refused:
            requests.check_member(transaction(state), ME)
        assert refused.value.code is CONCURRENT
    else:
        requests.check_member(transaction(state, pending=DEAD), ME)


@pytest.mark.parametrize("state", STATES)
def test_init_producer_id_is_answered_by_state(state: TransactionState) -> None:
    answer: Outcome = EMPTY if state in AT_REST else CONCURRENT if state in PREPARED else PREPARE_EPOCH_FENCE
    assert init(transaction(state)) == answer
    assert init(transaction(state), ME) == answer, "goes on after a failure"
    assert init(transaction(state), Producer(999, 3)) is FENCED
    assert init(transaction(state), Producer(999, 32766)) is FENCED
    if state in AT_REST:
        assert init(transaction(state), Producer(1000, 2)) is FENCED
        assert init(transaction(state, last_producer_epoch=2), Producer(1000, 2)) is EMPTY
        assert init(transaction(state, producer_epoch=-1), Producer(5, 5)) is EMPTY, "the id is new here"


def test_ongoing_transaction_is_fenced_for_any_expected_epoch() -> None:
    """As in Kafka, the expected epoch is compared only for a new epoch: a late producer aborts its successor's
    transaction.
    """
    assert init(transaction(ONGOING), Producer(1000, 2)) is PREPARE_EPOCH_FENCE


def test_exhausted_epochs_need_a_new_producer_id() -> None:
    for state in AT_REST:
        for epoch in (32766, 32767):
            one = transaction(state, producer_epoch=epoch)
            assert requests.wants_new_producer_id(one, None)
            assert requests.wants_new_producer_id(one, Producer(1000, epoch))
            assert not requests.wants_new_producer_id(one, Producer(1000, 17))
            move = requests.init_producer_id(one, None, timeout_ms=9, new_producer_id=2000, now_ms=50)
            assert (move.producer_id, move.producer_epoch) == (2000, 0)
            assert (move.last_producer_id, move.last_producer_epoch) == (1000, -1)
    one = transaction(producer_epoch=32766, last_producer_epoch=32765)
    assert init(one, Producer(1000, 32765)) is EMPTY, "the answer to 32765 was lost"
    one = transaction(producer_epoch=32766)
    assert init(one, Producer(1000, 32765)) is FENCED
    assert init(one, Producer(1000, 32766), 2000) is EMPTY
    one = transaction(COMPLETE_ABORT, producer_epoch=32767, last_producer_epoch=32766)
    assert init(one, Producer(1000, 32766)) is FENCED, "its transaction of version 2 timed out"
    one = transaction(producer_epoch=0, last_producer_id=900, last_producer_epoch=32766)
    assert init(one, Producer(900, 32766)) is EMPTY, "the answer with the new producer id was lost"
    assert init(transaction(producer_epoch=0, last_producer_id=900), Producer(900, 17)) is FENCED
    for state in (ONGOING, *PREPARED):
        assert not requests.wants_new_producer_id(transaction(state, producer_epoch=32766), None)


@pytest.mark.parametrize("version", [0, 2])
def test_no_producer_has_the_last_epoch(version: int) -> None:
    """Another epoch could not follow: not to end its transaction, nor to abort it when it has timed out."""
    one = transaction(COMPLETE_ABORT, producer_epoch=32767, last_producer_epoch=32766)
    for producer in (Producer(1000, 32766), Producer(1000, 32767)):
        with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
            requests.end(one, producer, commit=False, client_version=version, now_ms=50)
        with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
            requests.add_partitions(one, producer, [("t", 0)], client_version=version, now_ms=50)


def test_fence_is_followed_by_an_abort() -> None:
    one = transaction(ONGOING)
    fence = requests.init_producer_id(one, None, timeout_ms=9, new_producer_id=None, now_ms=50)
    producer = Producer(fence.producer_id, fence.producer_epoch)
    one = transaction(ONGOING)
    one.prepare_fence()
    move = requests.end(one, producer, commit=False, from_client=False, now_ms=50)
    assert move is not None and (move.state, move.producer_epoch) == (PREPARE_ABORT, 4)
    assert (one.producer_epoch, one.last_producer_epoch, one.pending) == (4, -1, PREPARE_ABORT)
    late = transaction(ONGOING, producer_epoch=9)
    with pytest.raises(KafkaError):
        requests.end(late, producer, commit=False, from_client=False, now_ms=50)


def test_only_ongoing_transactions_time_out() -> None:
    assert [requests.has_timed_out(transaction(ONGOING), now_ms) for now_ms in (25, 26)] == [False, True]
    for state in STATES:
        assert requests.has_timed_out(transaction(state), 10**9) is (state is ONGOING)
