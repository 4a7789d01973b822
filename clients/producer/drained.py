"""What the accumulator hands to the sender, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.clients.producer.queues import Batch


@dataclass(slots=True)
class Statistics:
    """Counters since the start, for people and benchmarks."""

    records: int = 0
    acknowledged_records: int = 0
    rehashed_records: int = 0
    batches: int = 0
    retries: int = 0
    refused_batches: int = 0
    """Batches that a leader refused because its partition had moved to a newer generation."""
    split_batches: int = 0
    """Batches that were larger than their topic allows, and went on as two."""
    switches: int = 0
    epoch_bumps: int = 0
    expired_records: int = 0


@dataclass(slots=True)
class Drained:
    """What to transmit now, per node, and when to ask again if nothing happens before."""

    requests: dict[int, list[Batch]] = field(default_factory=dict)
    wake_at: float | None = None
    refresh: bool = False
    """Fresh metadata would help: a leader is unknown, or has moved on to a generation that we do not know yet."""

    def wake_by(self, instant: float) -> None:
        """Ask again at `instant` at the latest."""
        if self.wake_at is None or instant < self.wake_at:
            self.wake_at = instant
