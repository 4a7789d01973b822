"""The group coordinator's state in memory: a shard per led partition of `__consumer_offsets`, an entry per group.

`Replay` builds the groups from the journal of one partition: the last record of a key wins, markers settle
transactions. It calls the same `Offsets` methods as live commits, so both give the same map.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final, Protocol

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import Commit, Delete, Observe, Verdict
from anabranch.broker.coordinators.classic_groups.group_machine import apply, restore
from anabranch.broker.coordinators.classic_groups.group_state import EMPTY, STABLE, GroupLimits
from anabranch.broker.coordinators.consumer_groups import administration
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.gates.group_gate_state import GroupGateState
from anabranch.broker.coordinators.offsets.committed_offsets import CommittedOffset, Offsets
from anabranch.broker.coordinators.offsets.consumer_positions import Positions
from anabranch.broker.coordinators.runtime.journal import (
    CONSUMER_GROUP_ERRORS,
    Journal,
    JournalRecord,
    Records,
    TransactionEnd,
    TransactionPart,
)
from anabranch.broker.coordinators.share_groups import share_administration, share_heartbeat
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup
from anabranch.broker.coordinators.streams_groups import streams_administration, streams_heartbeat
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.protocol import consumer_group_records, group_records, share_group_records, streams_group_records
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.group_records import Record
from anabranch.protocol.internal_topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    decode_group,
    decode_offset,
    encode_key,
)
from anabranch.protocol.records.batch import NO_PRODUCER_ID
from anabranch.protocol.values import slotted

LAST_RECORDS: Final = (
    consumer_group_records.ConsumerGroupMetadataKey,
    share_group_records.ShareGroupMetadataKey,
    streams_group_records.StreamsGroupMetadataKey,
)
"""The keys whose tombstone deletes a group."""
AssignedGroup = ConsumerGroup | ShareGroup | StreamsGroup
"""Groups whose coordinator assigns; each kind has its own records."""
AnyGroup = ClassicGroup | AssignedGroup


class GroupDecision(Protocol):
    """A decision about a group that is not in the journal yet."""

    @property
    def group(self) -> AssignedGroup:
        """The group."""

    @property
    def records(self) -> list[Record]:
        """The records that carry out the decision."""

    @property
    def then(self) -> list[Callable[[], None]]:
        """Callbacks that run once the records are in the log."""


@slotted(eq=False)
class GroupEntry:
    """A group with its offsets, and everything else that the coordinator keeps for it."""

    group: AnyGroup
    partition: int
    offsets: Offsets = field(default_factory=Offsets)
    positions: Positions = field(default_factory=Positions)
    gates: GroupGateState = field(default_factory=GroupGateState)
    writes_in_flight: int = 0
    outlives_offsets: bool = False
    """Whether the group stays Empty without offsets until the next retention check, as in Kafka 4."""
    end_offset: int = 0
    """The offset after the last record of a KIP-848 group; responses wait until it is replicated."""

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self.group.group_id

    @property
    def classic(self) -> ClassicGroup:
        """The group, which must be classic."""
        assert isinstance(self.group, ClassicGroup), f"{self.group.describe()} does not use the classic protocol"
        return self.group

    @property
    def withheld(self) -> frozenset[tuple[str, int]]:
        """The partitions of subscribed topics that stock members are not given."""
        return self.group.withheld if isinstance(self.group, ClassicGroup) else self.gates.withheld

    def is_unread(self, topic_id: bytes, topic: str, index: int) -> bool:
        """Return whether no member still has a withheld partition, and no transaction may commit an offset of it."""
        if self.offsets.unstable((topic, index)):
            return False
        if isinstance(self.group, ClassicGroup):
            return self.group.state is STABLE
        return isinstance(self.group, ConsumerGroup) and self.group.is_free(topic_id, index)

    @property
    def untouched(self) -> bool:
        """Whether the group has no record in the journal, and no members, present or pending."""
        group = self.group
        if not isinstance(group, ClassicGroup):
            return group.epoch == 0 and not group.members
        return group.state is EMPTY and group.generation == 0 and not group.members.pending

    @property
    def vacant(self) -> bool:
        """Whether the group can be forgotten without loss: it has no record in the journal and is not in use."""
        in_use = self.offsets or self.positions.watches or self.writes_in_flight or self.outlives_offsets
        return self.untouched and not in_use

    @property
    def deserted(self) -> bool:
        """Whether the group has no members, present or pending."""
        group = self.group
        if not isinstance(group, ClassicGroup):
            return not group.members
        return group.state is EMPTY and not group.members.pending

    def tombstones(self) -> list[tuple[bytes, bytes | None]]:
        """Return the records that delete the group from the journal, except for its offsets."""
        if isinstance(self.group, ConsumerGroup):
            return [group_records.encode(one) for one in administration.tombstones(self.group)]
        if isinstance(self.group, ShareGroup):
            return [group_records.encode(one) for one in share_heartbeat.tombstones(self.group)]
        if isinstance(self.group, StreamsGroup):
            return [group_records.encode(one) for one in streams_heartbeat.tombstones(self.group)]
        return [(encode_key(GroupMetadataKey(group=self.group.group_id)), None)]

    def next_deadline(self) -> int | None:
        """Return the earliest deadline of the group, its positions and its gates."""
        deadlines = (self.group.next_deadline(), self.positions.next_deadline(), self.gates.next_deadline())
        return min((due for due in deadlines if due is not None), default=None)

    def authorize(self, event: Commit | Observe | Delete, now_ms: int) -> None:
        """Check an event against the group. Raises KafkaError."""
        if isinstance(self.group, ConsumerGroup):
            administration.authorize(self.group, event)
            return
        if isinstance(self.group, ShareGroup):
            share_administration.authorize(self.group, event)
            return
        if isinstance(self.group, StreamsGroup):
            streams_administration.authorize(self.group, event)
            return
        (verdict,) = apply(self.group, event, now_ms)
        assert isinstance(verdict, Verdict)
        if verdict.error is not ErrorCode.NONE:
            raise KafkaError(verdict.error, verdict.reason)

    async def write(
        self,
        journal: Journal,
        records: Records,
        errors: Mapping[ErrorCode, ErrorCode],
        transaction: TransactionPart | None = None,
        appended: Callable[[int], None] | None = None,
    ) -> int:
        """Append records of this group; the entry is kept meanwhile. Raises KafkaError with a code from `errors`."""
        self.writes_in_flight += 1
        try:
            return await journal.append(self.partition, records, errors, transaction=transaction, appended=appended)
        finally:
            self.writes_in_flight -= 1

    async def take(
        self,
        journal: Journal,
        decision: GroupDecision,
        *,
        before: Iterable[tuple[bytes, bytes | None]] = (),
    ) -> None:
        """Write a decision to the journal and apply it. Raises KafkaError if that failed or replication was too slow.

        `before` are records that precede the decision's, such as the tombstone of the group that it replaces.
        """
        group = decision.group
        if not decision.records:
            for act in decision.then:
                act()
            if self.end_offset:
                await journal.wait_replicated(self.partition, self.end_offset, CONSUMER_GROUP_ERRORS)
            return
        encoded = [*before, *map(group_records.encode, decision.records)]

        def on_appended(first_offset: int) -> None:
            self.end_offset = first_offset + len(encoded)
            self.group = group
            for record in decision.records:
                group.apply(record)
            for act in decision.then:
                act()

        await self.write(journal, encoded, CONSUMER_GROUP_ERRORS, appended=on_appended)


@slotted
class Replay:
    """The state of one partition's journal, as far as it has been read."""

    groups: dict[str, GroupMetadataValue] = field(default_factory=dict)
    assigned_groups: dict[str, AssignedGroup] = field(default_factory=dict)
    offsets: dict[str, Offsets] = field(default_factory=dict)
    _staged: dict[int, dict[str, None]] = field(default_factory=dict)
    """Producer id -> the groups with offsets of its open transaction: a journal may have far more groups."""

    def apply(self, entry: JournalRecord | TransactionEnd) -> None:
        """Apply the next entry of the journal. Raises DecodeError."""
        match entry:
            case TransactionEnd(producer_id=producer_id, commit=commit):
                for group in self._staged.pop(producer_id, ()):
                    self.offsets[group].settle(producer_id, commit=commit)
            case JournalRecord(key=OffsetCommitKey() as key):
                self._put_offset(key, entry)
            case JournalRecord(key=GroupMetadataKey(group=group), value=None):
                self.groups.pop(group, None)
            case JournalRecord(key=GroupMetadataKey(group=group), value=bytes() as value):
                self.groups[group] = decode_group(value)
            case JournalRecord(key=key) if group_records.is_ours(key):
                self._put_assigned_group(key, entry.value)

    def _put_assigned_group(self, key: Any, value: bytes | None) -> None:
        content = None if value is None else group_records.decode_value(key, value)
        group = self.assigned_groups.get(key.group_id)
        if group is None:
            if content is None:
                return
            group = self.assigned_groups[key.group_id] = _group_of(key)(key.group_id)
        group.apply((key, content))
        if content is None and isinstance(key, LAST_RECORDS):
            del self.assigned_groups[key.group_id]

    def _put_offset(self, key: OffsetCommitKey, entry: JournalRecord) -> None:
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
            self._staged.setdefault(entry.producer_id, {})[key.group] = None

    def slots(self, partition: int, limits: GroupLimits, rng: random.Random, now_ms: int) -> dict[str, GroupEntry]:
        """Return the groups in the journal: those with a generation, and those with offsets only."""
        slots = {
            group_id: GroupEntry(restore(group_id, value, limits, rng, now_ms), partition)
            for group_id, value in self.groups.items()
        }
        for group_id, group in self.assigned_groups.items():
            slots[group_id] = GroupEntry(group, partition)
        for group_id, offsets in self.offsets.items():
            if offsets:
                slot = slots.setdefault(group_id, GroupEntry(ClassicGroup(group_id, limits, rng), partition))
                slot.offsets = offsets
        return slots


def _group_of(key: Any) -> type[AssignedGroup]:
    for kinds, made in ((share_group_records.KINDS, ShareGroup), (streams_group_records.KINDS, StreamsGroup)):
        if type(key) in dict(kinds.values()):
            return made
    return ConsumerGroup


@slotted(eq=False)
class Shard:
    """One partition of `__consumer_offsets` that this broker leads."""

    partition: int
    leader_epoch: int
    loading: bool = True
    slots: dict[str, GroupEntry] = field(default_factory=dict)
    lost_topics: dict[str, bytes] = field(default_factory=dict)
    """The topics that were deleted while it was loading: name -> id."""
    _replay: Replay = field(default_factory=Replay)

    def apply(self, entry: JournalRecord | TransactionEnd) -> None:
        """Apply the next entry of the journal while loading. Raises DecodeError."""
        self._replay.apply(entry)

    def take_over(self, limits: GroupLimits, rng: random.Random, now_ms: int) -> None:
        """Take over the groups after the journal has been read to its end."""
        replay, self._replay = self._replay, Replay()
        self.slots = replay.slots(self.partition, limits, rng, now_ms)
