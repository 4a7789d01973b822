"""Computes where the state of a key is: in which partition, and whether a resize has brought it there.

State moves with its key (`state_handover`). From the resize on, a key's state belongs to the new partition, and arrives
there some time later. Until then that partition's store lacks the key, or has what it was long ago. So an answer about
a key is given only when the state has made the key's last move:

    the key came from another partition   the store has the mark that all keys of that one have arrived
    the key was always here               nothing is awaited
    the store has handed over more        resizes are known here later than to the task: the key may have left already

Joined topics are resized one after the other; their state moves when the last one is. Pure; the source topics' lineages
say which key is where, as for `misplaced_keys`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from anabranch.clients.streams.changelog import Marks
from anabranch.protocol import linear_hashing
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import Lineage


class KeyLocations:
    """The partitions of the keys of one subtopology, by the lineages of its sources."""

    def __init__(self, lineages: Collection[Lineage | None], partitions: int) -> None:
        """Create the locations; `partitions` counts if a topic has no lineage: it is a plain Kafka topic."""
        known = [one for one in lineages if one is not None]
        self._lineage = min(known, key=lambda one: len(one.history)) if len(known) == len(lineages) else None
        self.partitions = partitions if self._lineage is None else self._lineage.count
        """The number of partitions that have state, or will have it."""

    @property
    def resized(self) -> bool:
        """Whether the topics were ever resized. Before that, keys may be in other partitions (`misplaced_keys`)."""
        return self._lineage is not None and len(self._lineage.history) > 1

    def partition_of(self, key: bytes) -> int:
        """Return the partition of a key."""
        key_hash = murmur2(key)
        return key_hash % self.partitions if self._lineage is None else self._lineage.address(key_hash)

    def awaited(self, key: bytes, marks: Marks) -> str:
        """Return why the state of a key is not in the store of its partition, by the marks of that; empty if it is."""
        if (ahead := self._ahead(marks)) or self._lineage is None:
            return ahead
        moved = last_move(self._lineage, murmur2(key))
        if moved is None or marks.arrived.get(moved[0], -1) >= moved[1]:
            return ""
        return _on_its_way([moved[0]], self.partitions)

    def has_all(self, key: bytes, partition: int, marks: Marks) -> bool:
        """Whether the state of a key is in the store of this partition, by its marks, and in no other one."""
        return not self.awaited(key, marks) and (not self.resized or self.partition_of(key) == partition)

    def awaited_by(self, partition: int, marks: Marks) -> str:
        """Return why the store of a partition lacks state of some keys, by its marks; empty if it lacks none."""
        if (ahead := self._ahead(marks)) or self._lineage is None:
            return ahead
        opened = self._lineage.key_epochs(partition)[-1]
        before = {one.partition for one in self._lineage.predecessors(opened)}
        missing = sorted(one for one in before if marks.arrived.get(one, -1) < opened.generation)
        return _on_its_way(missing, self.partitions) if missing else ""

    def _ahead(self, marks: Marks) -> str:
        if self._lineage is None or marks.departed <= self._lineage.generation:
            return ""
        return "the input was resized, and this instance does not know to how many partitions yet"


def last_move(lineage: Lineage, key_hash: int) -> tuple[int, int] | None:
    """Return the partition that keys with a hash came from last, and the generation; None if they never moved."""
    for (_, before), (generation, after) in reversed(list(pairwise(lineage.history))):
        source = linear_hashing.address(key_hash, lineage.base, before)
        if source != linear_hashing.address(key_hash, lineage.base, after):
            return source, generation
    return None


def _on_its_way(sources: Iterable[int], partitions: int) -> str:
    both = " and ".join(map(str, sources))
    return f"a resize to {partitions} partitions moves state here from partition {both}, and it has not arrived yet"
