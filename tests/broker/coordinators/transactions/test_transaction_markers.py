"""Markers: sorted by leader, batched by request, and the meaning of each response."""

from __future__ import annotations

from anabranch.broker.coordinators.transactions.transaction_journal import TransactionShard
from anabranch.broker.coordinators.transactions.transaction_markers import (
    NOWHERE,
    DecidedTransaction,
    MarkerOutcome,
    MarkerQueues,
    outcomes,
    request_of,
)
from anabranch.broker.coordinators.transactions.transactional_id import (
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TopicPartition,
    TransactionState,
)
from anabranch.protocol.apis.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.transactions.test_transactional_id import transaction

T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)


def decided(
    *partitions: TopicPartition, producer_id: int = 1000, state: TransactionState = PREPARE_COMMIT, epoch: int = 7
) -> DecidedTransaction:
    one = transaction(state, producer_id=producer_id, partitions=set(partitions))
    return DecidedTransaction(TransactionShard(0, epoch), one, one.prepare_complete(now_ms=50))


def answer(**errors: ErrorCode) -> WriteTxnMarkersResponse:
    """`t0=...` is partition 0 of topic t."""
    rows = [
        WritableTxnMarkerTopicResult(
            name=name[0],
            partitions=[WritableTxnMarkerPartitionResult(partition_index=int(name[1:]), error_code=int(error))],
        )
        for name, error in errors.items()
    ]
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=1000, topics=rows)])


def only(load_of: DecidedTransaction, *partitions: TopicPartition, **errors: ErrorCode) -> MarkerOutcome:
    (outcome,) = outcomes({load_of: set(partitions)}, answer(**errors))
    return outcome


def test_markers_are_queued_by_leader() -> None:
    queues = MarkerQueues()
    one, two = decided(T0, T1, U0), decided(T0, producer_id=1001)
    leaders = {T0: 1, T1: 2, U0: NOWHERE}
    assert queues.add(one, [T0, T1, U0], leaders.__getitem__) == {1, 2, NOWHERE}
    assert queues.add(two, [T0], leaders.__getitem__) == {1}
    assert queues.pop(1) == {one: {T0}, two: {T0}}
    assert queues.pop(1) == {}, "what is on its way does not wait any more"
    assert queues.pop(2) == {one: {T1}} and queues.pop(NOWHERE) == {one: {U0}}


def test_markers_of_a_resigned_shard_are_dropped() -> None:
    queues = MarkerQueues()
    one, two = decided(T0), decided(T0)
    queues.add(one, [T0], lambda _: 1)
    queues.add(two, [T0], lambda _: 1)
    queues.forget(one.shard)
    assert queues.pop(1) == {two: {T0}}


def test_request_has_all_markers_with_the_current_coordinator_epoch() -> None:
    one, two = decided(T0, T1, U0), decided(T0, producer_id=1001, state=PREPARE_ABORT)
    one.shard.leader_epoch = 9
    first, second = request_of({one: {T1, U0, T0}, two: {T0}}).markers
    assert (first.producer_id, first.producer_epoch, first.transaction_result, first.coordinator_epoch) == (
        1000,
        3,
        True,
        9,
    )
    assert [(topic.name, topic.partition_indexes) for topic in first.topics] == [("t", [0, 1]), ("u", [0])]
    assert (second.producer_id, second.transaction_result, second.coordinator_epoch) == (1001, False, 7)


def test_marker_errors_are_final_fenced_or_retriable() -> None:
    one = decided(T0, T1, U0)
    outcome = only(one, T0, T1, U0, t0=ErrorCode.NONE, t1=ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    assert outcome.marked == {T0, T1} and outcome.fenced is None
    assert outcome.again == {U0: ErrorCode.UNKNOWN_SERVER_ERROR}, "the answer did not mention it"
    for error in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ):
        assert only(one, T0, t0=error).again == {T0: error}
    for error in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        outcome = only(one, T0, T1, t0=error, t1=ErrorCode.NONE)
        assert outcome.fenced is error and not outcome.again


def test_response_for_another_producer_is_ignored() -> None:
    other = decided(T0, producer_id=1001)
    (outcome,) = outcomes({other: {T0}}, answer(t0=ErrorCode.NONE))
    assert outcome.again and not outcome.marked
