"""Collects the partitions that changed, so that periodic work costs the changes and not all partitions.

Invariant: a partition that changed after a `take` is in the next one; others are not.
"""

from __future__ import annotations

from collections.abc import Iterator
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

    def take(self) -> list[Partition]:
        """Return the partitions that changed since the last call, in the order of their first changes."""
        changed = list(self)
        for listener in self._changed:
            listener.partition.listeners[listener] = None
        self._changed.clear()
        return changed


class _ChangeListener:
    __slots__ = ("changed", "partition")

    def __init__(self, partition: Partition, changed: dict[_ChangeListener, None]) -> None:
        self.partition = partition
        self.changed = changed

    def on_change(self) -> None:
        self.changed[self] = None
