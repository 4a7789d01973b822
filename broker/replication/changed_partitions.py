"""Collects the partitions that changed, so that periodic work costs the changes and not all partitions.

Invariant: a partition that changed after a `take` is in the next one; others are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.broker.replication.partition import Partition


class ChangedPartitions:
    """Listens to the partitions of one broker for one periodic task."""

    def __init__(self) -> None:
        self._changed: dict[_ChangeListener, None] = {}
        self._listeners: dict[Partition, _ChangeListener] = {}

    def __iter__(self) -> Iterator[Partition]:
        return (listener.partition for listener in self._changed)

    def add(self, partition: Partition) -> None:
        """Add a partition; the next `take` returns it."""
        listener = self._listeners[partition] = _ChangeListener(partition, self._changed)
        listener.on_change()

    def remove(self, partition: Partition) -> None:
        """Remove a partition that this broker no longer hosts."""
        listener = self._listeners.pop(partition)
        self._changed.pop(listener, None)
        partition.listeners.pop(listener, None)

    def take(self, at_most: int) -> list[Partition]:
        """Return partitions that have changed since a call returned them, in the order of their first changes."""
        taken = list(islice(self._changed, at_most))
        for listener in taken:
            del self._changed[listener]
            listener.partition.listeners[listener] = None
        return [listener.partition for listener in taken]

    def take_all(self, at_once: int) -> Iterator[list[Partition]]:
        """Yield all partitions that have changed until now, some at once: each takes a microsecond."""
        for _ in range(0, len(self._changed), at_once):
            yield self.take(at_once)


class _ChangeListener:
    __slots__ = ("changed", "partition")

    def __init__(self, partition: Partition, changed: dict[_ChangeListener, None]) -> None:
        self.partition = partition
        self.changed = changed

    def on_change(self) -> None:
        self.changed[self] = None
