"""Requests about share groups (KIP-932): members and start offsets.

Decisions are written to the journal as those of KIP-848 groups are. Before a partition can be assigned, the share
coordinator has to initialize its state; that runs in the background, and a later heartbeat retries it after a failure.
Source: Kafka's GroupCoordinatorService (shareGroupHeartbeat, persisterInitialize, describeShareGroupOffsets,
alterShareGroupOffsets, deleteShareGroupOffsets).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment, each
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.broker.coordinators.groups.member_removal import removing
from anabranch.broker.coordinators.runtime.journal import CONSUMER_GROUP_ERRORS
from anabranch.broker.coordinators.share_groups import share_heartbeat
from anabranch.broker.coordinators.share_groups.share_group import JOINING, ShareGroup, of_topics, unite, without
from anabranch.broker.coordinators.share_groups.share_heartbeat import ShareDecision
from anabranch.broker.coordinators.share_partitions.share_state import FRESH, LOG_START, ShareKey, ShareState
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.coordinators.consumer_groups.heartbeat import HeartbeatAnswer, Sender
    from anabranch.broker.coordinators.consumer_groups.metadata_topics import MetadataTopics
    from anabranch.broker.coordinators.consumer_groups.topics_view import TopicsView
    from anabranch.broker.coordinators.groups.group_runtime import GroupRuntime
    from anabranch.broker.coordinators.groups.group_shards import GroupEntry
    from anabranch.broker.coordinators.share_partitions.share_services import ShareServices
    from anabranch.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest

log: Final = logging.getLogger(__name__)
ASSIGN_AFTER_S: Final = 1.0
"""How long initialized partitions wait for others, to be assigned together."""
Starts = Mapping[tuple[bytes, int], int]
"""Topic id and partition -> the group's start offset."""


class ShareGroupRequests:
    """Handle heartbeats, timers, descriptions and start offsets of share groups."""

    def __init__(self, runtime: GroupRuntime, topics: MetadataTopics, shares: Callable[[], ShareServices]) -> None:
        self._runtime = runtime
        self._topics = topics
        self._shares = shares

    # --- members -------------------------------------------------------------------------------------------------

    async def heartbeat(self, request: ShareGroupHeartbeatRequest, sender: Sender) -> HeartbeatAnswer:
        """Handle a join, heartbeat or leave; respond when its records are replicated. Raises KafkaError."""
        share_heartbeat.check_request(request)
        if not self._topics.complete:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the topics are not known yet")
        joins = request.member_epoch == JOINING
        slot = self._runtime.table.find_for_member(request.group_id, joins=joins)
        try:
            decision = share_heartbeat.heartbeat(
                self._group_for(slot, joins),
                request,
                sender,
                topics=self._topics.of(request.group_id),
                settings=self._shares().settings(request.group_id),
                now_ms=self._runtime.clock_ms(),
            )
            await slot.take(self._runtime.journal, decision)
            self._start_initialization(slot, decision)
        finally:
            self._runtime.reschedule(slot)
        answer: HeartbeatAnswer = decision.answer
        return answer

    def _group_for(self, slot: GroupEntry, joins: bool) -> ShareGroup:
        """Return the entry's group, or a new one for a member that joins an unused entry."""
        group = slot.group
        if isinstance(group, ShareGroup):
            return group
        if joins and slot.untouched and not slot.offsets:
            return ShareGroup(slot.group_id)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {slot.group_id!r} is not a share group")

    def _start_initialization(self, slot: GroupEntry, decision: ShareDecision) -> None:
        """Initialize partitions in the background, except those that are initialized or in flight by now."""
        group = decision.group
        if partitions := without(decision.initialize, unite(group.initialized, group.in_flight)):
            starts = {
                (topic_id, index): LOG_START if index in decision.younger.get(topic_id, ()) else FRESH
                for topic_id, index in each(partitions)
            }
            self._runtime.background.spawn(self._initialize(slot, group, partitions, starts, group.epoch))

    async def _initialize(
        self, slot: GroupEntry, group: ShareGroup, partitions: Assignment, starts: Starts, epoch: int
    ) -> None:
        with _in_flight(group, partitions):
            await self._initialize_and_assign(slot, group, starts, epoch)

    async def _initialize_and_assign(self, slot: GroupEntry, group: ShareGroup, starts: Starts, epoch: int) -> None:
        """Initialize the states of partitions, and assign those that succeed, without long waits for the others."""
        persister = self._shares().persister
        left_behind = 0

        async def initialize(topic_id: bytes, index: int, start: int) -> Assignment:
            nonlocal left_behind
            key = ShareKey(group.group_id, topic_id, index)
            try:
                await persister.initialize(key, epoch, start)
            except KafkaError as error:
                log.warning("%s: a share partition is not initialized yet: %s", group.group_id, error)
                if error.code is ErrorCode.FENCED_STATE_EPOCH:
                    with contextlib.suppress(KafkaError):
                        left_behind = max(left_behind, (await persister.summary(key)).state_epoch)
                return {}
            return {topic_id: frozenset({index})}

        pending = [asyncio.create_task(initialize(*one, start)) for one, start in starts.items()]
        try:
            while pending:
                finished, _ = await asyncio.wait(pending, timeout=ASSIGN_AFTER_S)
                pending = [one for one in pending if one not in finished]
                done = functools.reduce(unite, [one.result() for one in finished], NOTHING)
                topics = self._topics.of(group.group_id)
                await self._take_if_alive(slot, group, share_heartbeat.on_initialized(group, done, topics))
        finally:
            for one in pending:
                one.cancel()
        await self._take_if_alive(slot, group, share_heartbeat.overtake(group, left_behind))

    async def _take_if_alive(self, slot: GroupEntry, group: ShareGroup, decision: ShareDecision) -> None:
        if group.dead or not decision.records:
            return
        try:
            await slot.take(self._runtime.journal, decision)
        except KafkaError as error:
            log.warning("%s: %s", group.describe(), error)
            group.metadata_seen = None

    async def expire(self, slot: GroupEntry) -> None:
        """Remove the members whose sessions have expired."""
        group = slot.group
        if not isinstance(group, ShareGroup) or group.dead:
            return
        settings, now_ms = self._shares().settings(group.group_id), self._runtime.clock_ms()
        topics = self._topics.of(group.group_id)
        decision, over = share_heartbeat.fence(group, topics=topics, settings=settings, now_ms=now_ms)
        with removing(self._runtime, slot, [(one, Timer.SESSION) for one in over], now_ms):
            await slot.take(self._runtime.journal, decision)

    def on_loaded(self, slot: GroupEntry) -> None:
        """Restart the session timers of a group that was read from the journal."""
        group = slot.group
        if isinstance(group, ShareGroup):
            due_ms = self._runtime.clock_ms() + self._shares().settings(group.group_id).session_timeout_ms
            for member_id in group.members:
                group.timers.set(member_id, Timer.SESSION, due_ms)

    # --- administration ------------------------------------------------------------------------------------------

    async def group(self, group_id: str) -> tuple[ShareGroup, TopicsView]:
        """Return the replicated state of a group, and the topics. Raises GROUP_ID_NOT_FOUND and others."""
        slot = self._slot(group_id)
        group = slot.group  # it may be deleted meanwhile
        assert isinstance(group, ShareGroup)
        await self._runtime.journal.wait_replicated(slot.partition, slot.end_offset, CONSUMER_GROUP_ERRORS)
        return group, self._topics.of(group_id)

    def _slot(self, group_id: str, *, empty: bool = False) -> GroupEntry:
        slot = self._runtime.table.find(group_id)
        if slot is None or not isinstance(slot.group, ShareGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if empty and slot.group.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} is not empty.")
        return slot

    def check_empty(self, group_id: str, *, create: bool = False) -> None:
        """Check that the offsets of a group may be changed. Raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.

        With `create` a group that does not exist passes.
        """
        slot = self._runtime.table.find(group_id)
        if not create or (slot is not None and not slot.vacant):
            self._slot(group_id, empty=True)

    async def standing(self, group_id: str, topic_id: bytes, index: int) -> ShareState | None:
        """Return a group's state in a partition; None without a state or a share group. Raises KafkaError."""
        slot = self._runtime.table.find(group_id)
        group = None if slot is None else slot.group
        if not isinstance(group, ShareGroup) or index not in group.initialized.get(topic_id, ()):
            return None
        return await self._shares().persister.summary(ShareKey(group_id, topic_id, index))

    async def move(
        self, group_id: str, topic_id: bytes, topic: str, starts: dict[int, int], *, create: bool = False
    ) -> dict[int, KafkaError]:
        """Set new start offsets of an empty group in a topic; return the errors by partition.

        With `create` a group that does not exist is created. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        slot = self._runtime.table.find_or_create(group_id) if create else self._slot(group_id)
        try:
            return await self._move(slot, self._group_for(slot, create), topic_id, topic, starts)
        finally:
            self._runtime.reschedule(slot)

    async def _move(
        self, slot: GroupEntry, group: ShareGroup, topic_id: bytes, topic: str, starts: dict[int, int]
    ) -> dict[int, KafkaError]:
        group_id = group.group_id
        if group.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} is not empty.")
        decision = ShareDecision(group, self._topics.of(group_id))
        names = {**group.names, topic_id: topic}
        moved = {topic_id: frozenset(starts)}
        epoch = group.epoch + 1
        decision.write_states(unite(group.initializing, moved), group.initialized, names)
        decision.write_epoch(epoch, group.metadata_hash)
        refused: dict[int, KafkaError] = {}
        with _in_flight(group, moved):
            await slot.take(self._runtime.journal, decision)

            async def initialize(index: int, start: int) -> None:
                try:
                    await self._shares().persister.initialize(ShareKey(group_id, topic_id, index), epoch, start)
                except KafkaError as error:
                    refused[index] = error

            await asyncio.gather(*(initialize(*one) for one in starts.items()))
        # A partition that was refused keeps the state that it had, if any.
        there = frozenset(starts) - refused.keys() | frozenset(starts) & group.initialized.get(topic_id, frozenset())
        initialized = share_heartbeat.on_initialized(group, of_topics([(topic_id, there)]), self._topics.of(group_id))
        await self._take_if_alive(slot, group, initialized)
        return refused

    async def forget(self, group_id: str, topic_id: bytes) -> bool:
        """Drop an empty group's topic; return if it had it. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, others."""
        slot = self._slot(group_id, empty=True)
        group = slot.group
        assert isinstance(group, ShareGroup)
        if topic_id not in group.initialized and topic_id not in group.initializing:
            return False
        known = unite(group.initializing, group.initialized)
        await self._delete_states(slot, group, {topic_id: known[topic_id]})
        return True

    async def topics_gone(self, slot: GroupEntry, topic_ids: Collection[bytes]) -> None:
        """Remove deleted topics from a group; share coordinators delete their states on their own."""
        group = slot.group
        if isinstance(group, ShareGroup):
            await self._take_if_alive(slot, group, share_heartbeat.topics_removed(group, topic_ids))

    async def delete_states(self, slot: GroupEntry) -> None:
        """Delete all share states of a group before the group is deleted. Raises KafkaError."""
        if isinstance(slot.group, ShareGroup):
            await self._delete_states(slot, slot.group, unite(slot.group.initializing, slot.group.initialized))

    async def _delete_states(self, slot: GroupEntry, group: ShareGroup, partitions: Assignment) -> None:
        """Delete the states of topics. Raises KafkaError.

        Meanwhile, and after a failure, they are not initialized: a member that joins gets new ones.
        """
        if not partitions:
            return
        with _in_flight(group, partitions):
            decision = ShareDecision(group)
            states = unite(group.initializing, partitions), without(group.initialized, partitions)
            decision.write_states(*states, group.names)
            await slot.take(self._runtime.journal, decision)
            for topic_id, index in each(partitions):
                _check_alive(group)
                await self._shares().persister.delete(ShareKey(group.group_id, topic_id, index))
            _check_alive(group)
            await slot.take(self._runtime.journal, share_heartbeat.topics_removed(group, partitions))


@contextlib.contextmanager
def _in_flight(group: ShareGroup, partitions: Assignment) -> Iterator[None]:
    """Have no heartbeat initialize these partitions during the block; afterwards the next one does, if necessary."""
    added = without(partitions, group.in_flight)
    group.in_flight = unite(group.in_flight, added)
    try:
        yield
    finally:
        group.in_flight = without(group.in_flight, added)
        group.metadata_seen = None


def _check_alive(group: ShareGroup) -> None:
    """Raise NOT_COORDINATOR if the group was deleted, or is coordinated by another broker by now."""
    if group.dead:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"group {group.group_id} was deleted or has another coordinator")
