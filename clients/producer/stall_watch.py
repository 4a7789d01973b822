"""Notices where records wait and nothing becomes of them, so that who waits for them hears what for.

A partition stands still when the same batch is at its head in two looks, and was transmitted or cannot be. Each such
batch is told of once: a look that finds several tells of the oldest, and of how many others. Pure; the sender has the
clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from anabranch.clients.producer.queues import Batch, PartitionQueue

LOOK_S: Final = 2.0
"""How far apart looks are: a broker that is busy, or a leader that has just been elected, takes less."""
WhyLate = Callable[[PartitionQueue, Batch, float], str]
"""What a batch waits for, in words."""


class StallWatch:
    """What was at the head of each partition when it was last looked at."""

    def __init__(self) -> None:
        self._heads: dict[PartitionQueue, Batch] = {}
        self._told: dict[PartitionQueue, Batch] = {}

    def check(self, queues: Iterable[PartitionQueue], now: float, why_late: WhyLate) -> str | None:
        """One line about what stands still since the last look and was not told of yet; None if nothing does."""
        heads = {queue: head for queue in queues if (head := head_of(queue)) is not None}
        still = {queue: head for queue, head in heads.items() if self._heads.get(queue) is head}
        news = [(head.created_at, queue) for queue, head in still.items() if self._told.get(queue) is not head]
        self._heads, self._told = heads, still
        if not news:
            return None
        since, queue = min(news, key=lambda one: one[0])
        others = f", and {len(news) - 1} other partitions wait" if len(news) > 1 else ""
        waited = f"{queue.topic.name}-{queue.index}: records wait for {now - since:.0f} s to be stored"
        return f"{waited}: {why_late(queue, heads[queue], now)}{others}"


def head_of(queue: PartitionQueue) -> Batch | None:
    """The batch for which the others of a partition wait: transmitted, or kept from it by something outside."""
    if queue.unresolved:
        return queue.unresolved[0]
    return queue.waiting[0] if queue.waiting and queue.blocked_since is not None else None
