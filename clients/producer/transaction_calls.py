"""The five requests of a transactional producer: their coordinators, and the outcomes of their responses.

Pure. `transaction_manager` decides when to send a request, and what follows from the response; `transaction_errors`
decides what an error code means. Requests about many partitions have one outcome: the first non-retriable error, if
any. Source: KIP-98, KIP-447, `TransactionManager` of Kafka's client 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.producer.transaction_errors import Step
from anabranch.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from anabranch.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from anabranch.protocol.apis.end_txn import EndTxnRequest
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest
from anabranch.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.topic_partition import TopicPartition
from anabranch.protocol.wire import ZERO_UUID

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
ADD_PARTITIONS_VERSION_MAX: Final = 3
"""Versions 4 and 5 are for brokers, which verify many transactions at once."""


class TransactionalProducer(NamedTuple):
    """A producer's identity in its requests; id and epoch are -1 before they are assigned."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionCall(NamedTuple):
    """A request and the coordinator that it is for."""

    step: Step
    request: Any
    key: str
    key_type: int


def initialize(producer: TransactionalProducer, timeout_ms: int) -> TransactionCall:
    """Build InitProducerId: take the transactional id over, or raise this producer's epoch."""
    request = InitProducerIdRequest(
        transactional_id=producer.transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )
    return TransactionCall(Step.INITIALIZE, request, producer.transactional_id, TRANSACTION_KEY)


def add_partitions(producer: TransactionalProducer, partitions: Iterable[TopicPartition]) -> TransactionCall:
    """Build AddPartitionsToTxn for these partitions."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
        ],
    )
    return TransactionCall(Step.ADD_PARTITIONS, request, producer.transactional_id, TRANSACTION_KEY)


def add_group(producer: TransactionalProducer, group_id: str) -> TransactionCall:
    """Build AddOffsetsToTxn for this group."""
    request = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group_id,
    )
    return TransactionCall(Step.ADD_OFFSETS, request, producer.transactional_id, TRANSACTION_KEY)


def commit_offsets(
    producer: TransactionalProducer, group: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, int]
) -> TransactionCall:
    """Build TxnOffsetCommit, for the group's coordinator: the offsets are pending until the transaction ends."""
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for partition, offset in sorted(offsets.items()):
        topics.setdefault(partition.topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset,
                committed_leader_epoch=group.leader_epoch_of(*partition) if group.leader_epoch_of is not None else -1,
                committed_metadata="",
            )
        )
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group.group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name, partitions=rows, expected_topic_id=(group.topic_ids or {}).get(name, ZERO_UUID)
            )
            for name, rows in topics.items()
        ],
    )
    return TransactionCall(Step.COMMIT_OFFSETS, request, group.group_id, GROUP_KEY)


def end(producer: TransactionalProducer, *, commit: bool) -> TransactionCall:
    """Build EndTxn."""
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    return TransactionCall(Step.END, request, producer.transactional_id, TRANSACTION_KEY)


def outcome(step: Step, response: Any) -> tuple[ErrorCode, str]:
    """Return the decisive error code, and the partition that it concerns, if any."""
    if step is Step.ADD_PARTITIONS:
        rows = [
            (ErrorCode(row.partition_error_code), f"{topic.name}-{row.partition_index}")
            for topic in response.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        ]
    elif step is Step.COMMIT_OFFSETS:
        rows = [
            (ErrorCode(row.error_code), f"{topic.name}-{row.partition_index}")
            for topic in response.topics
            for row in topic.partitions
        ]
    else:
        return ErrorCode(response.error_code), ""
    return _worst(rows)


def _worst(rows: list[tuple[ErrorCode, str]]) -> tuple[ErrorCode, str]:
    """Return the decisive error: OPERATION_NOT_ATTEMPTED only means that another partition has one."""
    failed = [row for row in rows if row[0] is not ErrorCode.NONE]
    telling = [row for row in failed if row[0] is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    if telling:
        return max(telling, key=lambda row: _severity(row[0]))
    return failed[0] if failed else (ErrorCode.NONE, "")


def _severity(code: ErrorCode) -> int:
    """Rank non-retriable errors before retriable ones."""
    return 0 if code.retriable else 1
