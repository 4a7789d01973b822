"""The markers that decided transactions still owe to partitions: for which broker they wait, and what its answer means.

A decided transaction owes one marker to every partition in it. `MarkerQueues` sorts them by the broker that leads the
partition now; what has no live leader, or was refused by a former leader, is sorted again later. One request carries
all that waits for one broker. The partitions left in the `Transaction` are the truth: a marker is done when its
partition is out of there, so that a marker sent twice does no harm.

Pure: no connections, no clock. Source: kafka.coordinator.transaction.TransactionMarkerChannelManager and
TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from anabranch.broker.coordinators.transactions.transaction_journal import TransactionShard, grouped
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

NOWHERE: Final = -1
"""The queue of markers whose partition has no live leader that we know of."""

FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""Another coordinator, or a later epoch, has been there: this one has nothing to decide any more."""
NEEDS_NO_MARKER: Final = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""The partition cannot hold markers, so it never took a record of the transaction either."""


@dataclass(slots=True, eq=False)
class DecidedTransaction:
    """A transaction on its way from Prepare to Complete."""

    shard: TransactionShard
    transaction: Transaction
    completion: Transition
    """The transition to write when no partition is left."""

    @property
    def done(self) -> bool:
        """Whether every partition has its marker."""
        return not self.transaction.partitions

    def marker(self, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
        """The marker for some of its partitions, under the present coordinator epoch."""
        transaction = self.transaction
        return WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=transaction.state is PREPARE_COMMIT,
            topics=[
                WritableTxnMarkerTopic(name=one.topic, partition_indexes=one.partition_ids)
                for one in grouped(partitions)
            ],
            coordinator_epoch=self.shard.leader_epoch,
            transaction_version=transaction.client_version,
        )


Load = dict[DecidedTransaction, set[TopicPartition]]
"""The markers that one request carries, or one queue holds: transaction -> its partitions."""


@dataclass(slots=True)
class MarkerQueues:
    """The markers that wait for each broker."""

    _queues: dict[int, Load] = field(default_factory=dict)

    def add(
        self,
        decided: DecidedTransaction,
        partitions: Iterable[TopicPartition],
        leader_of: Callable[[TopicPartition], int],
    ) -> set[int]:
        """Sort partitions into the queues of their leaders; returns the brokers, NOWHERE among them, that got some."""
        nodes = set()
        for partition in partitions:
            node = leader_of(partition)
            self._queues.setdefault(node, {}).setdefault(decided, set()).add(partition)
            nodes.add(node)
        return nodes

    def pop(self, node: int) -> Load:
        """All that waits for a broker; its queue is empty then."""
        return self._queues.pop(node, {})

    def forget(self, shard: TransactionShard) -> None:
        """Another broker leads the shard, and sends its markers now."""
        for queue in self._queues.values():
            for decided in [one for one in queue if one.shard is shard]:
                del queue[decided]


def request_of(load: Load) -> WriteTxnMarkersRequest:
    """One request for all of them."""
    return WriteTxnMarkersRequest(markers=[decided.marker(partitions) for decided, partitions in load.items()])


@dataclass(slots=True)
class MarkerOutcome:
    """The meaning of an answer for one transaction."""

    decided: DecidedTransaction
    marked: set[TopicPartition] = field(default_factory=set)
    again: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    fenced: ErrorCode | None = None


def outcomes(load: Load, response: WriteTxnMarkersResponse) -> Iterator[MarkerOutcome]:
    """What became of each marker in a request. One that the answer does not mention is sent again.

    Only FENCED and NEEDS_NO_MARKER end the matter; a transaction that was decided has to reach all of its partitions,
    whatever else goes wrong there.
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
