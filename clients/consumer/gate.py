"""The order gate: decides whether a key epoch's records may be delivered (rules R7, R9, R11; repairs K601, K602, K409).

A key epoch opens when every key epoch that held its keys before is *done*: read to its end and committed by the group,
and itself open. The rule is recursive, so a chain through an empty partition still waits for the records at its far
end, and it rests on committed offsets, which survive the crash of their owner; positions would not. The key epoch
before it in the same partition need only be open: a crash replays both, in order.

The rule itself is `protocol.order_gates`, which coordinators and models share. This module provides a consumer's
inputs: lineage and leader epochs (metadata), key epoch ends (from their leaders), the group's committed offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.protocol import order_gates
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.order_gates import UNKNOWN, Wait


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition in the metadata: its leader epoch, and the first leader epoch of each class generation."""

    leader_epoch: int
    gen_start: tuple[tuple[int, int], ...]


class TopicGate:
    """The gates of one topic, for one group. An ungated topic (no resize yet) has every key epoch open."""

    def __init__(self, lineage: Lineage, partitions: Mapping[int, PartitionView]) -> None:
        self.lineage = lineage
        self._partitions = dict(partitions)
        self._ends: dict[KeyEpoch, tuple[int, int]] = {}
        self._committed: dict[int, int] = {}
        self._boundaries_of: dict[int, list[KeyEpoch]] = {}
        self._waits_of: dict[KeyEpoch, tuple[Wait, ...]] = {}
        """Results since the last change of the inputs: looked up for every batch."""

    def refresh(self, lineage: Lineage, partitions: Mapping[int, PartitionView]) -> None:
        """Adopt newer metadata. A topic's generation never falls: older metadata is ignored (K507)."""
        if lineage.generation >= self.lineage.generation:
            self.lineage = lineage
            self._partitions = dict(partitions)
            self._boundaries_of.clear()
            self._waits_of.clear()

    def note_end(self, key_epoch: KeyEpoch, end_offset: int, *, leader_epoch: int) -> None:
        """Note a key epoch's end (exclusive) from a leader of `leader_epoch`. UNKNOWN ends are not kept."""
        if end_offset != UNKNOWN:
            self._ends[key_epoch] = (end_offset, leader_epoch)
            self._waits_of.clear()

    def note_committed(self, partition: int, offset: int) -> None:
        """Note the group's committed offset of a partition; it may fall when an administrator resets it (K608)."""
        self._committed[partition] = offset
        self._waits_of.clear()

    def committed_offset(self, partition: int) -> int:
        """Return the last known committed offset, or UNKNOWN."""
        return self._committed.get(partition, UNKNOWN)

    def key_epoch_at(self, partition: int, leader_epoch: int) -> KeyEpoch | None:
        """Return the key epoch of a batch appended in `leader_epoch`; None if metadata is older than the batch."""
        view = self._partitions.get(partition)
        if view is None or leader_epoch > view.leader_epoch:
            return None
        generation = next((g for g, first in reversed(view.gen_start) if first <= leader_epoch), None)
        if generation is None:
            generation = self.lineage.class_generations(partition)[0]
        if generation > self.lineage.generation:
            return None  # the broker's metadata has the epochs of a resize before its generation
        return KeyEpoch(partition, generation)

    def cut(self, key_epoch: KeyEpoch) -> int | None:
        """Return this key epoch's cut: the first leader epoch of the next key epoch. None for the last one."""
        following = self.lineage.next(key_epoch)
        view = self._partitions.get(key_epoch.partition)
        if following is None or view is None:
            return None
        return next((first for generation, first in view.gen_start if generation == following.generation), None)

    def end(self, key_epoch: KeyEpoch) -> int:
        """Return the key epoch's end, exclusive; UNKNOWN until reported, and again under a new leader (K409)."""
        view = self._partitions.get(key_epoch.partition)
        end, resolved_in = self._ends.get(key_epoch, (UNKNOWN, UNKNOWN))
        return end if view is None or resolved_in >= view.leader_epoch else UNKNOWN

    def is_open(self, key_epoch: KeyEpoch) -> bool:
        """Whether records of this key epoch may be delivered now."""
        return not self.waits(key_epoch)

    def waits(self, key_epoch: KeyEpoch) -> Sequence[Wait]:
        """Return everything, however far up the lineage, that keeps the key epoch closed."""
        known = self._waits_of.get(key_epoch)
        if known is None:
            known = self._waits_of[key_epoch] = tuple(
                order_gates.waits(
                    self.lineage, key_epoch, there=self._partitions, end=self.end, committed=self.committed_offset
                )
            )
        return known

    def boundaries(self, partition: int) -> Sequence[KeyEpoch]:
        """Return the key epochs of a partition that have been cut: its owner commits at the end of each (R10)."""
        known = self._boundaries_of.get(partition)
        if known is None:
            known = [one for one in self.lineage.key_epochs(partition) if self.cut(one) is not None]
            self._boundaries_of[partition] = known
        return known
