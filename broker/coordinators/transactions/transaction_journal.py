"""The records of transactional ids in `__transaction_state`, and the coordinator's state per partition.

The last record of an id is its state; a tombstone deletes it. Version 2 transactions use the flexible format, which has
fields for their additional data. Every record is written with acks=-1 before memory follows. Partitions of a topic are
written in order, so that equal states have equal bytes.

Source: kafka.coordinator.transaction.TransactionLog and TransactionStateManager (loadTransactionMetadata).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from anabranch.broker.coordinators.runtime.journal import JournalRecord, TransactionEnd
from anabranch.broker.coordinators.transactions.transactional_id import (
    EMPTY,
    NO_PRODUCER_ID,
    TopicPartition,
    Transaction,
    TransactionState,
    Transition,
)
from anabranch.protocol.errors import DecodeError, ErrorCode
from anabranch.protocol.internal_topics import (
    TransactionPartitions,
    TransactionValue,
    decode_transaction,
    encode_transaction,
    encode_transaction_key,
)
from anabranch.protocol.values import slotted

TRANSACTION_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The producer's error by append error; other errors stay unchanged."""


@slotted(eq=False)
class TransactionShard:
    """One partition of `__transaction_state` that this broker leads; its leader epoch is the coordinator epoch."""

    partition: int
    leader_epoch: int
    loading: bool = True
    transactions: dict[str, Transaction] = field(default_factory=dict)

    def apply(self, entry: JournalRecord | TransactionEnd) -> None:
        """Apply the next entry of the journal while loading. Raises DecodeError."""
        if isinstance(entry, TransactionEnd):
            return  # no producer writes transactions to this topic
        if entry.value is None:
            self.transactions.pop(entry.key, None)
        else:
            self.transactions[entry.key] = restore(entry.key, entry.value)


def record_of(transactional_id: str, transition: Transition) -> tuple[bytes, bytes]:
    """Return the key and value of the record for a transition."""
    assert transition.state is not EMPTY or not transition.partitions, f"{transition} has partitions"
    value = TransactionValue(
        producer_id=transition.producer_id,
        producer_epoch=transition.producer_epoch,
        transaction_timeout_ms=transition.timeout_ms,
        transaction_status=transition.state,
        transaction_partitions=None if transition.state is EMPTY else group_by_topic(transition.partitions),
        transaction_last_update_timestamp_ms=transition.last_update_ms,
        transaction_start_timestamp_ms=transition.start_ms,
        previous_producer_id=transition.last_producer_id if transition.client_version else NO_PRODUCER_ID,
        next_producer_id=transition.next_producer_id,
        client_transaction_version=transition.client_version,
    )
    return encode_transaction_key(transactional_id), encode_transaction(value)


def group_by_topic(partitions: Iterable[TopicPartition]) -> list[TransactionPartitions]:
    """Group partitions by topic."""
    topics: dict[str, TransactionPartitions] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, TransactionPartitions(topic=topic, partition_ids=[])).partition_ids.append(index)
    return list(topics.values())


def restore(transactional_id: str, data: bytes) -> Transaction:
    """Restore a transactional id from its last record. Raises DecodeError."""
    value = decode_transaction(data)
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise DecodeError(f"transaction status {value.transaction_status} is not known", buffer=data) from None
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        last_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions={(one.topic, index) for one in value.transaction_partitions or [] for index in one.partition_ids},
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
    )
