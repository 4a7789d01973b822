"""Computes the lags of groups for one scrape: high watermarks minus committed offsets.

A group may have committed thousands of offsets, so the event loop is yielded after some of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from anabranch.broker.tasks.yield_budget import YieldBudget

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator
    from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset

Committed = tuple[str, Mapping[tuple[str, int], "CommittedOffset"]]
"""A group and its committed offsets."""


def committed_by(coordinator: GroupCoordinator) -> list[Committed]:
    """Return the groups of a coordinator, with their committed offsets."""
    offsets = coordinator.offsets
    return [(group.group_id, offsets.of(group.group_id).committed) for group in coordinator.groups()]


class GroupLags:
    """The lags of the committed partitions that a broker replicates."""

    __slots__ = ("largest", "partitions", "sums")

    def __init__(self) -> None:
        self.partitions: list[tuple[str, str, int, int]] = []
        """Group, topic, partition and lag."""
        self.sums: Counter[tuple[str, str]] = Counter()
        """The sum of the lags of a group's partitions of a topic."""
        self.largest: dict[tuple[str, str], int] = {}
        """The largest lag of a group's partitions of a topic."""

    @classmethod
    async def of(cls, groups: Iterable[Committed], high_watermarks: Mapping[tuple[str, int], int]) -> GroupLags:
        """Compute the lags of groups."""
        lags, turns = cls(), YieldBudget()
        for group_id, committed in groups:
            for (topic, index), one in list(committed.items()):
                high_watermark = high_watermarks.get((topic, index))
                if high_watermark is not None:
                    lags.add(group_id, topic, index, max(high_watermark - one.offset, 0))
                await turns.spend()
        return lags

    def add(self, group_id: str, topic: str, index: int, lag: int) -> None:
        """Add the lag of a partition."""
        key = (group_id, topic)
        self.partitions.append((*key, index, lag))
        self.sums[key] += lag
        self.largest[key] = max(self.largest.get(key, 0), lag)
