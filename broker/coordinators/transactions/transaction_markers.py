"""The pending markers of decided transactions: queues per broker, requests, and the outcomes of responses.

A decided transaction needs one marker in each of its partitions. `MarkerQueues` queues them by current leader; markers
without a live leader, or rejected by a former leader, are queued again later. One request carries all markers for one
broker. `Transaction.partitions` is the source of truth: a marker is done when its partition is removed from there, so a
duplicate marker is harmless.

Pure: no connections, no clock. Source: kafka.coordinator.transaction.TransactionMarkerChannelManager and
TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Final

from anabranch.broker.coordinators.transactions.transaction_journal import TransactionShard, group_by_topic
from anabranch.broker.coordinators.transactions.transactional_id import (
    PREPARE_COMMIT,
    TopicPartition,
    Transaction,
    Transition,
)
from anabranch.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.values import slotted

NOWHERE: Final = -1
"""The queue of markers whose partition has no known live leader."""

FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Errors that mean another coordinator or a later epoch: this coordinator sends no more markers."""
NEEDS_NO_MARKER: Final = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""Errors of partitions that cannot hold markers, and so hold no record of the transaction."""


@slotted(eq=False)
class DecidedTransaction:
    """A transaction between Prepare and Complete."""

    shard: TransactionShard
    transaction: Transaction
    completion: Transition
    """The transition to write when every partition has its marker."""

    @property
    def done(self) -> bool:
        """Whether every partition has its marker."""
        return not self.transaction.partitions

    def marker(self, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
        """Return the marker for some of its partitions, with the current coordinator epoch."""
        transaction = self.transaction
        return WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=transaction.state is PREPARE_COMMIT,
            topics=[
                WritableTxnMarkerTopic(name=one.topic, partition_indexes=one.partition_ids)
                for one in group_by_topic(partitions)
            ],
            coordinator_epoch=self.shard.leader_epoch,
            transaction_version=transaction.client_version,
        )


Load = dict[DecidedTransaction, set[TopicPartition]]
"""The markers of one request or queue: transaction -> its partitions."""


@slotted
class MarkerQueues:
    """The queued markers of each broker."""

    _queues: dict[int, Load] = field(default_factory=dict)

    def add(
        self,
        decided: DecidedTransaction,
        partitions: Iterable[TopicPartition],
        leader_of: Callable[[TopicPartition], int],
    ) -> set[int]:
        """Queue partitions by leader; return the brokers that got some, possibly with NOWHERE."""
        nodes = set()
        for partition in partitions:
            node = leader_of(partition)
            self._queues.setdefault(node, {}).setdefault(decided, set()).add(partition)
            nodes.add(node)
        return nodes

    def pop(self, node: int) -> Load:
        """Remove and return all markers for a broker."""
        return self._queues.pop(node, {})

    def forget(self, shard: TransactionShard) -> None:
        """Drop the markers of a shard that another broker now leads."""
        for queue in self._queues.values():
            for decided in [one for one in queue if one.shard is shard]:
                del queue[decided]


def request_of(load: Load) -> WriteTxnMarkersRequest:
    """Return one request with all markers."""
    return WriteTxnMarkersRequest(markers=[decided.marker(partitions) for decided, partitions in load.items()])


@slotted
class MarkerOutcome:
    """The outcome of a response for one transaction."""

    decided: DecidedTransaction
    marked: set[TopicPartition] = field(default_factory=set)
    again: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    fenced: ErrorCode | None = None


def outcomes(load: Load, response: WriteTxnMarkersResponse) -> Iterator[MarkerOutcome]:
    """Evaluate the response for each transaction; markers missing in the response are sent again.

    Only FENCED and NEEDS_NO_MARKER are final; after any other error the marker is sent again, since a decided
    transaction has to reach all its partitions.
    """
    answered = {
        (marker.producer_id, topic.name, row.partition_index): ErrorCode(row.error_code)
        for marker in response.markers
        for topic in marker.topics
        for row in topic.partitions
    }
    for decided, partitions in load.items():
        outcome = MarkerOutcome(decided)
        for topic, index in sorted(partitions):
            key = (decided.transaction.producer_id, topic, index)
            error = answered.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)
            if error is ErrorCode.NONE or error in NEEDS_NO_MARKER:
                outcome.marked.add((topic, index))
            elif error in FENCED:
                outcome.fenced = error
            else:
                outcome.again[topic, index] = error
        yield outcome
