"""The metrics of a producer, and how long its switches to newer generations make records wait.

A topic *stalls* from the moment at which records of it have no partition to go to, or must not overtake older ones of
their keys (`switch`, steps c and d), until none is left. Only keys that a resize moves stall. Looked at when batches
are drained: a switch that finds nothing under way, and makes nothing wait, is no stall.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerMetrics:
    """A producer at one moment; counts are since its start."""

    records_sent: int
    """How many records `send` has accepted."""
    records_acknowledged: int
    """How many of them are stored, as far as `acks` asks for it."""
    records_failed: int
    """How many of them were refused, expired or aborted; the rest is under way."""
    records_rehashed: int
    """How many were partitioned again because, before they were stored, their topic was resized or, without a key,
    their partition could not take them."""
    batches_refused: int
    """How many batches a leader has refused because their partition had moved to a newer generation."""
    switches: int
    """How many newer generations have changed the keys of a partition in use."""
    stalls: int
    """How many times records of a topic had to wait for a switch."""
    last_stall_ms: float
    """How long they waited the last time."""
    longest_stall_ms: float
    """How long they waited at the most."""
    buffered_bytes: int
    """How many bytes the records that are under way take in memory."""


class Stalls:
    """Finds the topics that stall, and measures for how long."""

    def __init__(self) -> None:
        self.over = Durations()
        self._since: dict[str, float] = {}

    def look(self, topics: Iterable[TopicQueues], now: float) -> None:
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
