"""The producer id, epoch and sequence numbers of each partition's batches.

An idempotent producer raises the epoch itself, per partition, because leaders track it per partition too. A
transactional producer's epoch belongs to the coordinator: all partitions share it, and restart when it changes, which
happens only between transactions. Source: KIP-98, KIP-360.
"""

from __future__ import annotations

from anabranch.clients.config import ProducerConfig
from anabranch.clients.producer.metrics import Statistics
from anabranch.clients.producer.queues import PRODUCER_EPOCH_MAX, Batch, PartitionQueue
from anabranch.clients.producer.transaction_manager import TransactionManager


class Numbering:
    """Numbers batches. The sender sets `producer_id` when `wants_producer_id`; without idempotence it stays -1."""

    def __init__(self, config: ProducerConfig, statistics: Statistics) -> None:
        self.producer_id = -1
        self.wants_producer_id = config.enable_idempotence and config.transactional_id is None
        self._statistics = statistics
        self._idempotent = config.enable_idempotence
        self._in_flight_max = config.in_flight_max
        self.transactions: TransactionManager | None = None
        if config.transactional_id is not None:
            self.transactions = TransactionManager(config.transactional_id, config.transaction_timeout_ms)

    def ready(self, queue: PartitionQueue) -> bool:
        """Whether batches of this queue have sequence numbers, or can get them now."""
        if self.transactions is not None:
            return self._as_coordinated(queue, self.transactions.identity)
        if not self._idempotent:
            return True
        if queue.give_up and not queue.unresolved:
            queue.restart = True
        if not queue.restart and queue.producer_id >= 0:
            return True
        if queue.on_wire():
            return False
        spent = queue.producer_id == self.producer_id and queue.producer_epoch >= PRODUCER_EPOCH_MAX
        if self.producer_id < 0 or spent:
            self.wants_producer_id = True
            return False
        self._statistics.epoch_bumps += queue.producer_id >= 0
        if queue.producer_id == self.producer_id:
            queue.begin_again(self.producer_id, queue.producer_epoch + 1)
        else:
            queue.begin_again(self.producer_id, 0)
        return True

    def _as_coordinated(self, queue: PartitionQueue, identity: tuple[int, int] | None) -> bool:
        if identity is None:
            return False
        if (queue.producer_id, queue.producer_epoch) != identity:
            assert not queue.unresolved, "the epoch of a transactional producer changes between transactions"
            self._statistics.epoch_bumps += queue.producer_id >= 0
            queue.begin_again(*identity)
        return True

    def window_is_used_up(self, queue: PartitionQueue) -> bool:
        """Whether another batch would push the oldest unresolved one out of the leader's window of five.

        Pitfall: the number of unresolved batches is not enough. While the oldest is retried, those behind it may be
        acknowledged and make room for more, until its duplicate is no longer recognised.
        """
        return self._out_of_memory(queue, queue.transmitted)

    def must_wait(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Whether a retried batch must wait for the window: splitting adds batches after they were admitted."""
        return self._out_of_memory(queue, batch.ordinal)

    def _out_of_memory(self, queue: PartitionQueue, ordinal: int) -> bool:
        return ordinal - queue.unresolved[0].ordinal >= self._in_flight_max

    def admits(self, queue: PartitionQueue) -> bool:
        """Whether the partition may get new batches; a transaction must include it."""
        return self.transactions is None or self.transactions.admits(queue.topic.name, queue.index)
