"""Detects records that wait without progress, and reports the reason.

A partition stalls when the same batch is at its head in two checks, and was transmitted or cannot be. Each such batch
is reported once: a check that finds several reports the oldest, and the number of others. Pure; the sender provides the
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from anabranch.clients.producer.queues import Batch, PartitionQueue

LOOK_S: Final = 2.0
"""Interval of the checks: a busy broker, or a newly elected leader, takes less."""
WhyLate = Callable[[PartitionQueue, Batch, float], str]
"""Describes what a batch waits for."""


class StallWatch:
    """The head of each partition at the last check."""

    def __init__(self) -> None:
        self._heads: dict[PartitionQueue, Batch] = {}
        self._reported: dict[PartitionQueue, Batch] = {}

    def check(self, queues: Iterable[PartitionQueue], now: float, why_late: WhyLate) -> str | None:
        """Return one line about new stalls since the last check; None without any."""
        heads = {queue: head for queue in queues if (head := head_of(queue)) is not None}
        still = {queue: head for queue, head in heads.items() if self._heads.get(queue) is head}
        new_stalls = [
            (head.created_at, queue) for queue, head in still.items() if self._reported.get(queue) is not head
        ]
        self._heads, self._reported = heads, still
        if not new_stalls:
            return None
        since, queue = min(new_stalls, key=lambda one: one[0])
        more = len(new_stalls) - 1
        others = f", and {more} other {'partition waits' if more == 1 else 'partitions wait'}" if more else ""
        waited = f"{queue.topic.name}-{queue.index}: records wait for {now - since:.0f} s to be stored"
        return f"{waited}: {why_late(queue, heads[queue], now)}{others}"


def head_of(queue: PartitionQueue) -> Batch | None:
    """Return the batch that blocks a partition: transmitted, or blocked from outside."""
    if queue.unresolved:
        return queue.unresolved[0]
    return queue.waiting[0] if queue.waiting and queue.blocked_since is not None else None
