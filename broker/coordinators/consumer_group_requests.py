"""The requests about groups whose broker assigns (KIP-848): takes what `consumer_groups` decides into the journal.

A decision's records are one batch. They are in the log, and the group has applied them, before anything else can happen
to the group; its answer waits until all in-sync replicas have them, and so does every later answer that follows from
them. If the log refuses them, nothing has happened.

Source: Kafka's CoordinatorRuntime, GroupCoordinatorService.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.consumer_groups import administration, heartbeat, regular_expressions
from anabranch.broker.coordinators.consumer_groups.assignment import to_rows
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.heartbeat import HeartbeatAnswer, Sender
from anabranch.broker.coordinators.consumer_groups.member import JOINING, UNREVOKED
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.broker.coordinators.group_events import Close
from anabranch.broker.coordinators.replicated_journal import CONSUMER_GROUP_ERRORS, Journal
from anabranch.protocol import consumer_group_records
from anabranch.protocol.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import GroupMetadataKey, encode_key

if TYPE_CHECKING:
    import random

    from anabranch.broker.coordinators.background import Background
    from anabranch.broker.coordinators.consumer_groups.decision import Decision
    from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits
    from anabranch.broker.coordinators.group_table import GroupTable
    from anabranch.broker.coordinators.metadata_topics import MetadataTopics
    from anabranch.broker.coordinators.shards import Slot
    from anabranch.protocol.apis.consumer_group_describe import DescribedGroup

log: Final = logging.getLogger(__name__)

RETRY_MS: Final = 500
"""After how long members whose timers ran out are put out again, if the journal refused it."""
MayDescribe = Callable[[str], bool]
"""Whether the sender may see a topic."""


class ConsumerGroupRequests:
    """Heartbeats, timers and descriptions."""

    def __init__(
        self,
        table: GroupTable,
        journal: Journal,
        background: Background,
        topics: MetadataTopics,
        *,
        limits: Callable[[str], ConsumerGroupLimits],
        rng: random.Random,
        clock_ms: Callable[[], int],
        look_again: Callable[[Slot], None],
        close_classic: Callable[[Slot, Close], None],
    ) -> None:
        """`limits` are a group's; `look_again` is called when its next deadline may be another one.

        `close_classic` ends what waits in a classic group that has become one of this kind.
        """
        self.topics = topics
        self._table = table
        self._journal = journal
        self._background = background
        self._limits = limits
        self._rng = rng
        self._clock_ms = clock_ms
        self._look_again = look_again
        self._close_classic = close_classic
        self._resolving: set[str] = set()

    # --- members -------------------------------------------------------------------------------------------------

    async def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        version: int,
        sender: Sender,
        may_describe: MayDescribe,
    ) -> ConsumerGroupHeartbeatResponse:
        """Join, go on, or leave; answered when what follows from it is replicated. Raises KafkaError."""
        limits = self._limits(request.group_id)
        heartbeat.check_request(request, version, limits.assignors)
        if not self.topics.complete:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the topics are not known yet")
        if request.member_id == "":
            request.member_id = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        joins = request.member_epoch == JOINING
        slot = self._table.find_or_create(request.group_id) if joins else self._table.find(request.group_id)
        if slot is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}")
        try:
            group = self._group_for(slot, joins)
            decision = heartbeat.heartbeat(
                group,
                request,
                sender,
                topics=self.topics.of(request.group_id),
                limits=limits,
                now_ms=self._clock_ms(),
            )
            await self._take(slot, decision)
            if decision.resolve:
                self._resolve(slot, decision.resolve, may_describe)
        finally:
            self._look_again(slot)
        return _response(decision.answer)

    def _group_for(self, slot: Slot, joins: bool) -> ConsumerGroup:
        """The group of a slot: its own, or a new one where a member joins that nobody else is in."""
        group = slot.group
        if isinstance(group, ConsumerGroup):
            return group
        if joins and slot.deserted:
            return ConsumerGroup(slot.group_id)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {slot.group_id!r} is of the classic protocol")

    async def expire(self, slot: Slot) -> None:
        """Put out the members whose timers have run out."""
        group = slot.group
        if not isinstance(group, ConsumerGroup) or group.dead:
            return
        limits, now_ms = self._limits(group.group_id), self._clock_ms()
        decision, over = heartbeat.fence(group, topics=self.topics.of(group.group_id), limits=limits, now_ms=now_ms)
        try:
            await self._take(slot, decision)
        except KafkaError as error:
            for member, timer in over:
                if member.member_id in group.members:
                    group.timers.set(member.member_id, timer, now_ms + RETRY_MS)
            log.warning("members of %s stay for now: %s", group.group_id, error)
        else:
            for member, timer in over:
                log.info("member %s of %s is out: %s", member.member_id, group.group_id, timer.value)
        finally:
            self._look_again(slot)

    def loaded(self, slot: Slot) -> None:
        """The group was read from the journal: its members' timers begin anew."""
        group = slot.group
        if not isinstance(group, ConsumerGroup):
            return
        limits, now_ms = self._limits(group.group_id), self._clock_ms()
        for member in group.members.values():
            classic = member.classic
            session_ms = limits.session_timeout_ms if classic is None else classic.session_timeout_ms
            group.timers.set(member.member_id, Timer.SESSION, now_ms + session_ms)
            if member.state is UNREVOKED and classic is None:
                group.timers.set(member.member_id, Timer.REBALANCE, now_ms + member.rebalance_timeout_ms)

    # --- expressions ---------------------------------------------------------------------------------------------

    def _resolve(self, slot: Slot, expressions: frozenset[str], may_describe: MayDescribe) -> None:
        if slot.group_id not in self._resolving:
            self._resolving.add(slot.group_id)
            self._background.spawn(self._resolve_now(slot, expressions, may_describe))

    async def _resolve_now(self, slot: Slot, expressions: frozenset[str], may_describe: MayDescribe) -> None:
        self._resolving.discard(slot.group_id)
        group, topics, now_ms = slot.group, self.topics.of(slot.group_id), self._clock_ms()
        if not isinstance(group, ConsumerGroup) or group.dead:
            return
        found = regular_expressions.resolve(
            expressions, topics.names(), may_describe, version=topics.newest_topic, now_ms=now_ms
        )
        decision = heartbeat.resolved(group, found, topics=topics, limits=self._limits(slot.group_id), now_ms=now_ms)
        try:
            await self._take(slot, decision)
        except KafkaError as error:
            log.warning("what the expressions of %s match is not known yet: %s", slot.group_id, error)
        finally:
            self._look_again(slot)

    # --- the journal ---------------------------------------------------------------------------------------------

    async def _take(self, slot: Slot, decision: Decision) -> None:
        """Make a decision so. Raises KafkaError; then nothing has happened, or the journal is too slow to say."""
        group = decision.group
        if not decision.records:
            _carry_out(decision)
            if slot.end_offset:
                await self._journal.committed(slot.partition, slot.end_offset, CONSUMER_GROUP_ERRORS)
            return
        encoded = [consumer_group_records.encode(record) for record in decision.records]
        if slot.group is not group and not slot.untouched:
            encoded.insert(0, (encode_key(GroupMetadataKey(group=group.group_id)), None))

        def appended(first_offset: int) -> None:
            if slot.group is not group:
                self._close_classic(slot, Close(ErrorCode.REBALANCE_IN_PROGRESS))
                slot.group = group
            before = group.epoch
            for record in decision.records:
                group.apply(record)
            _carry_out(decision)
            slot.end_offset = first_offset + len(encoded)
            if group.epoch != before:
                log.debug("%s", group.describe())

        await slot.write(self._journal, encoded, CONSUMER_GROUP_ERRORS, appended=appended)

    # --- administration ------------------------------------------------------------------------------------------

    async def describe(self, group_id: str) -> DescribedGroup:
        """A group, as far as it is replicated. Raises GROUP_ID_NOT_FOUND, and what `GroupTable.find` does."""
        slot = self._table.find(group_id)
        if slot is None or not isinstance(slot.group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} is none whose broker assigns")
        await self._journal.committed(slot.partition, slot.end_offset, CONSUMER_GROUP_ERRORS)
        limits = self._limits(group_id)
        return administration.described(slot.group, self.topics.of(group_id), limits.assignors)

    def subscribed(self, group_id: str) -> frozenset[str]:
        """What the members of a group subscribe to; nothing for a group that there is not. Raises KafkaError."""
        slot = self._table.find(group_id)
        group = None if slot is None else slot.group
        return group.subscribed_topics() if isinstance(group, ConsumerGroup) else frozenset()


def _carry_out(decision: Decision) -> None:
    for act in decision.then:
        act()


def _response(answer: HeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    assigned = answer.assignment
    return ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.interval_ms,
        assignment=None
        if assigned is None
        else Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=row.topic_id, partitions=row.partitions) for row in to_rows(assigned)
            ]
        ),
    )
