"""Which partitions have changed since somebody last looked: whoever works through them pays for those, not for all.

Invariant: what changed after a `take` is in the next one, and what did not is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.broker.replication.partition import Partition


class ChangedPartitions:
    """Listens to the partitions of one broker, for one who looks at them from time to time."""

    def __init__(self) -> None:
        self._changed: dict[_Look, None] = {}
        self._looks: dict[Partition, _Look] = {}

    def __iter__(self) -> Iterator[Partition]:
        return (look.partition for look in self._changed)

    def add(self, partition: Partition) -> None:
        """This partition lives here from now on; nobody has looked at it."""
        look = self._looks[partition] = _Look(partition, self._changed)
        look.stirred()

    def remove(self, partition: Partition) -> None:
        """This partition lives here no more."""
        look = self._looks.pop(partition)
        self._changed.pop(look, None)
        partition.listeners.pop(look, None)

    def take(self) -> list[Partition]:
        """Those that changed since the last call, in the order of their first changes."""
        changed = list(self)
        for look in self._changed:
            look.partition.listeners[look] = None
        self._changed.clear()
        return changed


class _Look:
    """Listens to one partition."""

    __slots__ = ("changed", "partition")

    def __init__(self, partition: Partition, changed: dict[_Look, None]) -> None:
        self.partition = partition
        self.changed = changed

    def stirred(self) -> None:
        """There is something to look at."""
        self.changed[self] = None
