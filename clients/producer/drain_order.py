"""Chooses the batch of a partition to transmit now: one per request and partition, as Kafka requires.

In this order:

    1. the oldest unresolved batch that is not on the wire, once its backoff is over; nothing younger overtakes it
    2. the oldest waiting batch, when it is full, has lingered, or is waited for (flush, close, full buffer);
       not while the partition is closed or fenced (`switch`), five are unresolved, or the first one ever is (K506)

Pure; waits for an instant or for metadata are noted in `Drained`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.clients.config import ProducerConfig
from anabranch.clients.producer.producer_identity import Numbering
from anabranch.clients.producer.queues import Batch, PartitionQueue


@dataclass(slots=True)
class Drained:
    """The batches to transmit now, per node, and when to drain again at the latest."""

    requests: dict[int, list[Batch]] = field(default_factory=dict)
    wake_at: float | None = None
    refresh: bool = False
    """Whether to refresh metadata: a leader is unknown, or has a newer generation."""

    def wake_by(self, instant: float) -> None:
        """Drain again at `instant` at the latest."""
        if self.wake_at is None or instant < self.wake_at:
            self.wake_at = instant


class DrainOrder:
    """The rules above, with one producer's settings and numbering."""

    def __init__(self, config: ProducerConfig, numbering: Numbering) -> None:
        self._numbering = numbering
        self._linger_s = config.linger_ms / 1000
        self._batch_bytes = config.batch_bytes

    def next_of(self, queue: PartitionQueue, now: float, drained: Drained, *, hurried: bool) -> Batch | None:
        """Return the next batch; `hurried`: nothing lingers."""
        if not self._numbering.ready(queue):
            return None
        unresolved = queue.unresolved
        if unresolved:
            again = next((batch for batch in unresolved if not batch.on_wire), None)
            if again is not None:
                if again.retry_at > now:
                    drained.wake_by(again.retry_at)
                    return None
                if self._numbering.must_wait(queue, again):
                    return None
                return again if queue.established or not queue.on_wire() else None
            if self._numbering.window_is_used_up(queue) or first_contact(queue):
                return None
        if queue.fenced:
            drained.refresh = True
            return None
        if not queue.waiting or queue.give_up or queue.index in queue.topic.closed:
            return None
        if not self._numbering.admits(queue):
            return None
        batch = queue.waiting[0]
        lingers_until = batch.created_at + self._linger_s
        if hurried or len(queue.waiting) > 1 or lingers_until <= now or batch.size_bytes >= self._batch_bytes:
            return batch
        drained.wake_by(lingers_until)
        return None


def first_contact(queue: PartitionQueue) -> bool:
    """Whether only one batch may be unresolved: a leader accepts any first sequence of a producer new to it (K506)."""
    return not queue.established
