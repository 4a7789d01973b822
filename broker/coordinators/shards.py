"""What the group coordinator holds in memory: per led partition of `__consumer_offsets` a shard, per group a slot.

`Replay` folds the journal of one partition into what its groups were: the last record of a key wins, transactions
settle at their markers. Replaying is the same `Offsets` code that live commits go through, so both end in the same map.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.broker.coordinators.classic_group import Group
from anabranch.broker.coordinators.committed_offsets import CommittedOffset, Offsets
from anabranch.broker.coordinators.group_events import Commit, Delete, Observe, Verdict
from anabranch.broker.coordinators.group_machine import apply, restored
from anabranch.broker.coordinators.group_positions import Positions
from anabranch.broker.coordinators.group_state import EMPTY, GroupLimits
from anabranch.broker.coordinators.replicated_journal import Journal, Part, Put, Settle
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    decode_group,
    decode_offset,
)
from anabranch.protocol.records.batch import NO_PRODUCER_ID


@dataclass(slots=True, eq=False)
class Slot:
    """A group with its offsets, and all else that the coordinator keeps for it."""

    group: Group
    partition: int
    offsets: Offsets = field(default_factory=Offsets)
    positions: Positions = field(default_factory=Positions)
    writes_in_flight: int = 0

    @property
    def vacant(self) -> bool:
        """Whether nothing would be lost by forgetting the group: it left no trace in the journal either."""
        group = self.group
        untouched = group.state is EMPTY and group.generation == 0 and not group.members.pending
        return untouched and not self.offsets and not self.positions.watches and not self.writes_in_flight

    def next_deadline(self) -> int | None:
        """When the slot has to be looked at."""
        deadlines = (self.group.next_deadline(), self.positions.next_deadline())
        return min((due for due in deadlines if due is not None), default=None)

    def authorize(self, event: Commit | Observe | Delete, now_ms: int) -> None:
        """Raise the KafkaError with which the group refuses the event."""
        (verdict,) = apply(self.group, event, now_ms)
        assert isinstance(verdict, Verdict)
        if verdict.error is not ErrorCode.NONE:
            raise KafkaError(verdict.error, verdict.reason)

    async def write(
        self,
        journal: Journal,
        records: list[tuple[bytes, bytes | None]],
        errors: Mapping[ErrorCode, ErrorCode],
        transaction: Part | None = None,
    ) -> int:
        """Append records of this group, and keep the slot meanwhile. Raises KafkaError with a code out of `errors`."""
        self.writes_in_flight += 1
        try:
            return await journal.append(self.partition, records, errors, transaction=transaction)
        finally:
            self.writes_in_flight -= 1


@dataclass(slots=True)
class Replay:
    """The journal of one partition, as far as it has been read."""

    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    offsets: dict[str, Offsets] = field(default_factory=dict)

    def apply(self, entry: Put | Settle) -> None:
        """Take in the next entry. Raises DecodeError."""
        match entry:
            case Settle(producer_id=producer_id, commit=commit):
                for offsets in self.offsets.values():
                    offsets.settle(producer_id, commit=commit)
            case Put(key=OffsetCommitKey() as key):
                self._put_offset(key, entry)
            case Put(key=GroupMetadataKey(group=group), value=None):
                self.groups.pop(group, None)
            case Put(key=GroupMetadataKey(group=group), value=bytes() as value):
                self.groups[group] = decode_group(value)

    def _put_offset(self, key: OffsetCommitKey, entry: Put) -> None:
        offsets = self.offsets.setdefault(key.group, Offsets())
        partition = (key.topic, key.partition)
        if entry.value is None:
            offsets.delete(partition, entry.offset)
            return
        value = CommittedOffset.from_value(decode_offset(entry.value), entry.offset)
        if entry.producer_id == NO_PRODUCER_ID:
            offsets.commit(partition, value)
        else:
            offsets.stage(entry.producer_id, partition, value)

    def slots(self, partition: int, limits: GroupLimits, rng: random.Random, now_ms: int) -> dict[str, Slot]:
        """The groups that the journal knows: with a generation, or with offsets only."""
        slots = {
            group_id: Slot(restored(group_id, value, limits, rng, now_ms), partition)
            for group_id, value in self.groups.items()
        }
        for group_id, offsets in self.offsets.items():
            if offsets:
                slot = slots.setdefault(group_id, Slot(Group(group_id, limits, rng), partition))
                slot.offsets = offsets
        return slots


@dataclass(slots=True, eq=False)
class Shard:
    """One partition of `__consumer_offsets` that this broker leads."""

    partition: int
    leader_epoch: int
    loading: bool = True
    slots: dict[str, Slot] = field(default_factory=dict)
    _replay: Replay = field(default_factory=Replay)

    def apply(self, entry: Put | Settle) -> None:
        """Take in the next entry of the journal while loading. Raises DecodeError."""
        self._replay.apply(entry)

    def take_over(self, limits: GroupLimits, rng: random.Random, now_ms: int) -> None:
        """The journal is read to its end: its groups are ours now."""
        replay, self._replay = self._replay, Replay()
        self.slots = replay.slots(self.partition, limits, rng, now_ms)
