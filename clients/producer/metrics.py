"""The metrics of a producer, including the time for which switches to newer generations delay records.

A topic *stalls* from the moment when some of its records have no partition, or must not overtake older ones of their
keys (`switch`, steps c and d), until there are none left. Only keys that a resize moves stall. Measured when batches
are drained: a switch that delays no record is no stall.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.clients.durations import Durations

if TYPE_CHECKING:
    from anabranch.clients.producer.queues import TopicQueues


@dataclass(slots=True)
class Statistics:
    """Counters since the start, for display and benchmarks."""

    records: int = 0
    acknowledged_records: int = 0
    rehashed_records: int = 0
    batches: int = 0
    retries: int = 0
    refused_batches: int = 0
    """Batches refused by a leader whose partition had a newer generation."""
    split_batches: int = 0
    """Batches that were larger than their topic allows and were split in two."""
    switches: int = 0
    epoch_bumps: int = 0
    expired_records: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerMetrics:
    """A producer at one moment; counts are since its start."""

    records_sent: int
    """Records that `send` has accepted."""
    records_acknowledged: int
    """Records that are stored, as far as `acks` requires."""
    records_failed: int
    """Records that were refused, expired or aborted; the rest is in flight."""
    records_rehashed: int
    """Records that were partitioned again before they were stored: their topic was resized or, without a key, their
    partition could not take them."""
    batches_refused: int
    """Batches refused by a leader whose partition had a newer generation."""
    switches: int
    """Newer generations that changed the keys of a partition in use."""
    stalls: int
    """Times that records of a topic had to wait for a switch."""
    last_stall_ms: float
    """Duration of the last stall."""
    longest_stall_ms: float
    """Duration of the longest stall."""
    buffered_bytes: int
    """Memory of unsettled records."""


class Stalls:
    """Detects stalled topics, and measures for how long."""

    def __init__(self) -> None:
        self.over = Durations()
        self._since: dict[str, float] = {}

    def update(self, topics: Iterable[TopicQueues], now: float) -> None:
        """Note which topics stall now."""
        for topic in topics:
            if topic.returned or topic.closed:
                self._since.setdefault(topic.name, now)
            elif topic.name in self._since:
                self.over.record(now - self._since.pop(topic.name))


def metrics_of(statistics: Statistics, stalls: Durations, *, records_sent: int, buffered_bytes: int) -> ProducerMetrics:
    """The metrics of a producer from its counters."""
    return ProducerMetrics(
        records_sent=records_sent,
        records_acknowledged=statistics.acknowledged_records,
        records_failed=statistics.records - statistics.acknowledged_records,
        records_rehashed=statistics.rehashed_records,
        batches_refused=statistics.refused_batches,
        switches=statistics.switches,
        stalls=stalls.count,
        last_stall_ms=stalls.last_ms,
        longest_stall_ms=stalls.longest_ms,
        buffered_bytes=buffered_bytes,
    )
