"""The committed offsets of all groups of this broker: commit, lookup, deletion on request and by retention.

Every change is in the journal and replicated before it is acknowledged or visible. The group's state machine decides
who may commit, `committed_offsets` decides when offsets expire; this class writes the records and applies the outcome.
Source: kafka.coordinator.group.GroupMetadataManager.
"""

from __future__ import annotations

import logging
from codecs import utf_16_le_encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.classic_groups.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import Commit
from anabranch.broker.coordinators.classic_groups.group_state import EMPTY, STABLE
from anabranch.broker.coordinators.consumer_groups import administration
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.offsets.committed_offsets import (
    CommittedOffset,
    Offsets,
    TopicPartition,
    records_of,
    tombstones_of,
)
from anabranch.broker.coordinators.runtime.journal import COMMIT_ERRORS, CONSUMER_GROUP_ERRORS, Records
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup
from anabranch.broker.coordinators.streams_groups import streams_administration
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.broker.profiles.profile import profile_for
from anabranch.broker.tasks.yield_budget import ELEMENTS_PER_YIELD, YieldBudget
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups.group_runtime import GroupRuntime
    from anabranch.broker.coordinators.groups.group_shards import GroupEntry
    from anabranch.broker.coordinators.runtime.journal import Journal
    from anabranch.protocol.apis.offset_commit import OffsetCommitRequest

log: Final = logging.getLogger(__name__)


@value
class Doomed:
    """What is to be deleted of a group."""

    offsets: list[TopicPartition]
    group: list[tuple[bytes, bytes | None]]
    """The tombstones of the group itself; none if it stays."""


class GroupOffsets:
    """Commit, look up, delete and expire offsets."""

    def __init__(self, runtime: GroupRuntime) -> None:
        self._runtime = runtime
        self._retention_ms = runtime.settings.offsets_retention_minutes * 60_000
        self._metadata_max = runtime.settings.offset_metadata_max_bytes
        self._forgets_emptied = not profile_for(runtime.settings.kafka_version).keeps_emptied_groups
        """Whether an Empty group is deleted with its last offset, and not at the next retention check."""

    def of(self, group_id: str) -> Offsets:
        """Return the offsets of a group; none for an unknown group. Raises KafkaError."""
        slot = self._runtime.table.find(group_id)
        return Offsets() if slot is None else slot.offsets

    def offsets_of_member(self, group_id: str, member_id: str | None, member_epoch: int) -> Offsets:
        """Return the offsets of a group to a member with the given epoch (OffsetFetch v9 on).

        Raises UNKNOWN_MEMBER_ID and STALE_MEMBER_EPOCH if the member is unknown or has another epoch.
        """
        slot = self._runtime.table.find(group_id)
        if slot is not None and isinstance(slot.group, ConsumerGroup):
            administration.authorize_fetch(slot.group, member_id, member_epoch)
        elif slot is not None and isinstance(slot.group, StreamsGroup):
            streams_administration.authorize_fetch(slot.group, member_id, member_epoch)
        return Offsets() if slot is None else slot.offsets

    async def commit(
        self,
        request: OffsetCommitRequest,
        values: Mapping[TopicPartition, CommittedOffset],
        records: Records,
        requested: Collection[TopicPartition],
        *,
        version: int,
    ) -> None:
        """Store offsets for a member, or for any client while the group is Empty. Raises KafkaError.

        The member must have requested them: `values` and their records lack those whose metadata is too long.
        """
        generation = request.generation_id_or_member_epoch
        if generation < 0:
            slot = self._runtime.table.find_or_create(request.group_id)
        elif (found := self._runtime.table.find(request.group_id)) is not None:
            slot = found
        else:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {request.group_id!r}")
        try:
            sender = Commit(
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                generation=generation,
                version=version,
                partitions=requested,
            )
            slot.authorize(sender, self._runtime.clock_ms())
            await self._commit(slot, values, records)
        finally:
            self._runtime.reschedule(slot)

    async def begin(self, slot: GroupEntry, values: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit starting offsets on behalf of the group itself. Raises KafkaError."""
        self._check_current(slot)
        try:
            await self._commit(slot, values, records_of(slot.group_id, values))
        finally:
            self._runtime.reschedule(slot)

    async def _commit(
        self, slot: GroupEntry, values: Mapping[TopicPartition, CommittedOffset], records: Records
    ) -> None:
        """Append the records at once, and apply their values when they are replicated."""
        if not values:
            return
        slot.offsets.begin(values)
        try:
            first_offset = await slot.write(self._runtime.journal, records, COMMIT_ERRORS)
        finally:
            slot.offsets.end(values)
        slot.offsets.commit_all(values, first_offset)
        self._runtime.on_offsets_committed(slot, values.keys())

    async def delete(self, slot: GroupEntry, choose: Callable[[], Doomed]) -> Doomed:
        """Write tombstones for the chosen offsets, and for the group itself if chosen. Raises KafkaError.

        `choose` reads the state of the group, or raises. The group may change while many tombstones are encoded: then
        it is called again, and they are encoded again if it chooses differently.
        """
        choice = self._choice(slot, choose)
        batch: Records | None = None
        while batch is None and len(choice.offsets) > ELEMENTS_PER_YIELD:
            batch = await self._runtime.journal.build(_tombstones(slot, choice), YieldBudget())
            newer = self._choice(slot, choose)
            if newer != choice:
                choice, batch = newer, None
        if choice.offsets or choice.group:
            records = _tombstones(slot, choice) if batch is None else batch
            first_offset = await slot.write(self._runtime.journal, records, CONSUMER_GROUP_ERRORS)
            slot.offsets.delete_all(choice.offsets, first_offset)
        return choice

    def _choice(self, slot: GroupEntry, choose: Callable[[], Doomed]) -> Doomed:
        self._check_current(slot)
        return choose()

    def _check_current(self, slot: GroupEntry) -> None:
        """Raise NOT_COORDINATOR if the group was closed or loaded again: what an old entry knows may be outdated."""
        if not self._runtime.table.knows(slot):
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"group {slot.group_id!r} was closed meanwhile")

    async def delete_unconsumed(
        self, group_id: str, partitions: Iterable[TopicPartition], check: Callable[[], None]
    ) -> set[TopicPartition]:
        """Delete offsets for an administrator; return those of topics that members still consume.

        Raises GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP if the members' topics are unknown. `check` is called before the
        tombstones are written, and may raise.
        """
        slot = self._runtime.table.find(group_id)
        if slot is None or slot.vacant:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        consumed = set[TopicPartition]()
        requested = dict.fromkeys(partitions)

        def choose() -> Doomed:
            nonlocal consumed
            check()
            consumed = self._consumed(slot, requested)
            doomed = [one for one in requested if one not in consumed and one in slot.offsets.committed]
            return self._doomed(slot, doomed)

        if (await self.delete(slot, choose)).group:
            self.close_if_empty(slot)
        self._runtime.reschedule(slot)
        return consumed

    def _consumed(self, slot: GroupEntry, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions of topics that members consume. Raises NON_EMPTY_GROUP if their topics are unknown."""
        group = slot.group
        if isinstance(group, ShareGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {slot.group_id} has no offsets of consumers")
        if isinstance(group, ClassicGroup) and group.state is EMPTY:
            return set()
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE and not isinstance(group, StreamsGroup):
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, group.describe())
        topics = group.subscribed_topics()
        return {one for one in partitions if topics is None or one[0] in topics}

    async def remove_topics(self, slot: GroupEntry, partitions: Collection[TopicPartition]) -> None:
        """Delete the offsets of deleted topics, and the group if nothing is left of it.

        Offsets whose records are in the journal by now are those of the deleted topics, also if they are replicated
        later; later ones are those of new topics with these names.
        """
        offsets, end_offset = slot.offsets, -1
        writing = {one for one in partitions if offsets.is_being_written(one)}

        def is_of_new_topic(one: TopicPartition) -> bool:
            return offsets.last_record(one) >= end_offset or (offsets.is_being_written(one) and one not in writing)

        def choose() -> Doomed:
            nonlocal end_offset
            if end_offset < 0:
                end_offset = self._runtime.journal.end_offset(slot.partition)
            return self._doomed(slot, [one for one in partitions if not is_of_new_topic(one)])

        await self.forget(slot, choose)

    def _doomed(self, slot: GroupEntry, offsets: list[TopicPartition]) -> Doomed:
        """Return these offsets, and the group too if it is forgotten with its last offsets."""
        forgotten = self._forgets_emptied and self._is_left_empty_without(slot, offsets)
        return Doomed(offsets, slot.tombstones() if forgotten else [])

    def _is_left_empty_without(self, slot: GroupEntry, partitions: Collection[TopicPartition]) -> bool:
        """Return whether a memberless group loses its last offsets with these. False for share groups."""
        if isinstance(slot.group, ShareGroup) or not slot.deserted or slot.writes_in_flight or slot.offsets.staged:
            return False
        return slot.offsets.committed.keys() <= set(partitions)

    def close_if_empty(self, slot: GroupEntry) -> None:
        """Forget a deleted group, unless a member, a commit or a transaction has come while it was deleted."""
        if slot.deserted and not slot.offsets and not slot.writes_in_flight:
            self._runtime.close(slot, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def expire(self) -> None:
        """Delete expired offsets, and groups without members and offsets."""
        now_ms, turns = self._runtime.date_ms(), YieldBudget()
        for slot in list(self._runtime.table.slots.values()):
            await turns.spend()
            if not self._runtime.table.knows(slot):
                continue  # deleted, or coordinated by another broker, while others were written
            await self.forget(slot, partial(self._choose_expired, slot, now_ms))

    def _choose_expired(self, slot: GroupEntry, now_ms: int) -> Doomed:
        expired = self._expired_offsets(slot, now_ms)
        leaves_nothing = self._is_left_empty_without(slot, expired)
        forgotten = leaves_nothing and (bool(expired) or slot.outlives_offsets or not slot.untouched)
        return Doomed(expired, slot.tombstones() if forgotten else [])

    def _expired_offsets(self, slot: GroupEntry, now_ms: int) -> list[TopicPartition]:
        """Return the expired offsets of a group; retention counts from the last member's leave, or from the commit."""
        group, offsets, retention_ms = slot.group, slot.offsets, self._retention_ms
        if not isinstance(group, ClassicGroup):
            topics: frozenset[str] = group.subscribed_topics()
            return offsets.expired_offsets(now_ms, retention_ms, since_ms=None, subscribed=topics)
        if group.protocol_type is None:  # the group has only ever had offsets
            return offsets.expired_offsets(now_ms, retention_ms, since_ms=None)
        if group.state is EMPTY:
            since_ms = None if group.state_since_ms == -1 else group.state_since_ms  # -1: the record has an old format
            return offsets.expired_offsets(now_ms, retention_ms, since_ms=since_ms)
        subscribed = group.subscribed_topics() if group.state is STABLE else None
        if subscribed is None:
            return []
        return offsets.expired_offsets(now_ms, retention_ms, since_ms=None, subscribed=subscribed)

    async def forget(self, slot: GroupEntry, choose: Callable[[], Doomed]) -> None:
        """Delete expired offsets or those of deleted topics; after a failure the next retention check retries."""
        try:
            deleted = await self.delete(slot, choose)
        except KafkaError as error:
            log.warning("cannot remove offsets of %s yet: %s", slot.group.group_id, error)
            return
        if deleted.group:
            self.close_if_empty(slot)
        if deleted.group or deleted.offsets:
            self._runtime.reschedule(slot)


def _tombstones(slot: GroupEntry, doomed: Doomed) -> Iterator[tuple[bytes, bytes | None]]:
    return chain(tombstones_of(slot.group_id, doomed.offsets), doomed.group)


def utf16_length(text: str) -> int:
    """Return the length of a string in Java, which `offset.metadata.max.bytes` limits in spite of its name."""
    return len(utf_16_le_encode(text, "surrogatepass")[0]) // 2


async def encode(
    journal: Journal,
    group_id: str,
    values: Mapping[TopicPartition, CommittedOffset],
    turns: YieldBudget,
    producer: tuple[int, int] | None = None,
) -> Records:
    """Return the journal records of a commit. `producer` is the one whose transaction they are part of.

    Check the group afterwards: it may change while many records are encoded.
    """
    records = records_of(group_id, values)
    return records if len(values) <= ELEMENTS_PER_YIELD else await journal.build(records, turns, producer)
