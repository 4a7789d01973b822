"""Counts the partitions of a broker for one scrape.

A broker hosts thousands of partitions, and requests wait for the event loop: it is yielded after some partitions. So
each partition is counted in one state, but not all of them at one time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from anabranch.broker.tasks.yield_budget import YieldBudget

if TYPE_CHECKING:
    from anabranch.broker.replication.partition import Partition


@dataclass(slots=True)
class ReplicaCounts:
    """Counts over the replicas of a broker."""

    led: int = 0
    followed: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    draining: int = 0
    size_bytes: Counter[str] = field(default_factory=Counter)
    end_offsets: Counter[str] = field(default_factory=Counter)
    high_watermarks: dict[tuple[str, int], int] = field(default_factory=dict)

    @classmethod
    async def of(cls, partitions: Iterable[Partition]) -> Self:
        """Count the partitions that a broker has now."""
        counts, turns = cls(), YieldBudget()
        for one in list(partitions):
            counts.add(one)
            await turns.spend()
        return counts

    def add(self, partition: Partition) -> None:
        """Count a partition."""
        topic, log = partition.topic, partition.log
        self.size_bytes[topic] += log.size_bytes
        self.high_watermarks[topic, partition.index] = partition.high_watermark
        if not partition.is_leader:
            self.followed += 1
            return
        self.led += 1
        self.end_offsets[topic] += log.log_end_offset
        self.draining += partition.sealed
        if len(partition.isr) < len(partition.replicas):
            self.under_replicated += 1
            self.under_min_isr += len(partition.isr) < partition.effective_min_isr
