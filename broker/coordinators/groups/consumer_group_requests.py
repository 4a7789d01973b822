"""Requests about consumer groups (KIP-848): writes the decisions of `consumer_groups` to the journal.

A decision's records are one batch. The group applies them when they are in the log, before any other event of the
group. The response waits until all in-sync replicas have them, and so does every later response that depends on them.
If the log rejects them, nothing changes.

Source: Kafka's CoordinatorRuntime, GroupCoordinatorService.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import (
    Close,
    Heartbeat,
    Join,
    Leave,
    RebalanceRequired,
    Sync,
)
from anabranch.broker.coordinators.classic_groups.members import Member as FormerMember
from anabranch.broker.coordinators.consumer_groups import (
    administration,
    classic_members,
    conversion,
    departure,
    expressions,
    heartbeat,
    regular_expressions,
)
from anabranch.broker.coordinators.consumer_groups.assignment import to_rows
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.heartbeat import HeartbeatAnswer, Sender
from anabranch.broker.coordinators.consumer_groups.limits import ConsumerGroupLimits, limits_of
from anabranch.broker.coordinators.consumer_groups.member import JOIN_EPOCH
from anabranch.broker.coordinators.groups.member_removal import removing
from anabranch.broker.coordinators.runtime.journal import CONSUMER_GROUP_ERRORS, GROUP_ERRORS
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.protocol import group_records
from anabranch.protocol.apis.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import GroupMetadataKey, encode_group, encode_key

if TYPE_CHECKING:
    from anabranch.broker.coordinators.consumer_groups.metadata_topics import MetadataTopics
    from anabranch.broker.coordinators.groups.group_gates import GroupGates
    from anabranch.broker.coordinators.groups.group_runtime import GroupRuntime
    from anabranch.broker.coordinators.groups.group_shards import GroupEntry
    from anabranch.protocol.apis.consumer_group_describe import DescribedGroup

log: Final = logging.getLogger(__name__)

MayDescribe = Callable[[str], bool]
"""Returns whether the sender may describe a topic."""


class ConsumerGroupRequests:
    """Handle heartbeats, timers and descriptions of KIP-848 groups."""

    def __init__(self, runtime: GroupRuntime, topics: MetadataTopics, gates: GroupGates) -> None:
        self.topics = topics
        self._runtime = runtime
        self._gates = gates
        self._resolving: set[str] = set()

    def _limits(self, group_id: str) -> ConsumerGroupLimits:
        return limits_of(self._runtime.settings, self._runtime.group_configs.of(group_id))

    # --- members -------------------------------------------------------------------------------------------------

    async def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        version: int,
        sender: Sender,
        may_describe: MayDescribe,
    ) -> ConsumerGroupHeartbeatResponse:
        """Handle a join, heartbeat or leave; respond when its records are replicated. Raises KafkaError."""
        limits = self._limits(request.group_id)
        heartbeat.check_request(request, version, limits.assignors)
        if not self.topics.complete:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the topics are not known yet")
        if request.member_id == "":
            request.member_id = str(uuid.UUID(int=self._runtime.rng.getrandbits(128), version=4))
        joins = request.member_epoch == JOIN_EPOCH
        slot = self._runtime.table.find_for_member(request.group_id, joins=joins)
        try:
            if names := self._names_to_look_at(slot, request):
                await self._gates.prepare_for_member(slot, names)
                slot = self._runtime.table.find_for_member(request.group_id, joins=joins)
            gated = _needs_gates(slot, request.member_id, holds_gates=request.holds_gates)
            made = self._group_for(slot, joins, limits)
            decision = heartbeat.heartbeat(
                made.group,
                request,
                sender,
                topics=self.topics.of(request.group_id, gated=gated),
                limits=limits,
                now_ms=self._runtime.clock_ms(),
            )
            await self._take(slot, decision, made)
            if decision.resolve:
                self._resolve(slot, decision.resolve, may_describe)
        finally:
            self._runtime.reschedule(slot)
        return _response(decision.answer)

    def _names_to_look_at(self, slot: GroupEntry, request: ConsumerGroupHeartbeatRequest) -> frozenset[str]:
        """Return the topics whose gates affect the response; none while the metadata is unchanged."""
        group, image = slot.group, self.topics.of(slot.group_id).image
        names = frozenset(request.subscribed_topic_names or ())
        if not isinstance(group, ConsumerGroup):
            return names
        return group.subscribed_topics() | names if names or group.metadata_seen is not image else names

    def _update_withheld(self, slot: GroupEntry, decision: Decision) -> None:
        """Update the withheld partitions together with the targets that leave them out.

        Pitfall: a gate may open between the two, or while a decision without new targets is written. If the withheld
        partitions were then read anew, an open one would be missing in both, and no later event would assign it.
        """
        group = decision.group
        if not decision.records and not decision.has_read_topics:
            return
        if not group.gated_by_broker():
            self._gates.withhold_unassigned(slot, frozenset())
        elif decision.has_read_topics:
            self._gates.withhold_unassigned(slot, group.subscribed_topics())

    def _group_for(self, slot: GroupEntry, joins: bool, limits: ConsumerGroupLimits) -> Decision:
        """Return the entry's group, or a new one for a joining member, converted from a classic group with members.

        The decision that converts a group is applied to the new group, but not yet written. Raises GROUP_ID_NOT_FOUND.
        """
        group, topics = slot.group, self.topics.of(slot.group_id)
        if isinstance(group, ConsumerGroup):
            return Decision(group, topics, limits, self._runtime.clock_ms())
        if not joins or isinstance(group, ShareGroup | StreamsGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {slot.group_id!r} has another group type")
        if not len(group.members):
            anew = ConsumerGroup(slot.group_id)
            anew.epoch = max(group.generation, 0)  # generations are never reused
            return Decision(anew, topics, limits, self._runtime.clock_ms())
        made = conversion.upgrade(group, topics, limits, self._runtime.clock_ms())
        for record in made.records:
            made.group.apply(record)
        return made

    async def classic(self, slot: GroupEntry, event: Join | Sync | Heartbeat | Leave) -> Any:
        """Handle a request of the classic protocol and return its response. Raises KafkaError."""
        group = slot.group
        assert isinstance(group, ConsumerGroup), f"{slot.group_id} uses the classic protocol"
        if not self.topics.complete:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the topics are not known yet")
        if isinstance(event, Join):
            names = classic_members.subscription_of(classic_members.protocols_of(event)).topics
            await self._gates.prepare_for_member(slot, group.subscribed_topics() | frozenset(names))
            if not self._runtime.table.knows(slot):
                raise KafkaError(ErrorCode.NOT_COORDINATOR, "the group was closed meanwhile")
            if slot.group is not group:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the group's type has changed")
        limits, now_ms = self._limits(slot.group_id), self._runtime.clock_ms()
        holds_gates = event.request.holds_gates if isinstance(event, Join) else True
        member_id = event.request.member_id if isinstance(event, Join) else ""
        gated = _needs_gates(slot, member_id, holds_gates=holds_gates)
        decision = Decision(group, self.topics.of(slot.group_id, gated=gated), limits, now_ms)
        new_id = str(uuid.UUID(int=self._runtime.rng.getrandbits(128), version=4))
        try:
            classic_members.apply(decision, event, new_id)
            await self._take(slot, decision)
        finally:
            self._runtime.reschedule(slot)
        return decision.answer

    async def make_classic(self, slot: GroupEntry) -> bool:
        """Convert an empty group for a joining classic member; return whether it is classic now. Raises KafkaError."""
        group = slot.group
        assert isinstance(group, ConsumerGroup | StreamsGroup), f"{slot.group_id} uses another protocol"
        classic = ClassicGroup(slot.group_id, self._runtime.table.limits, self._runtime.rng)
        classic.generation = group.epoch  # generations are never reused, not after a failover either
        classic.state_since_ms = self._runtime.date_ms()
        key = encode_key(GroupMetadataKey(group=slot.group_id))

        def on_appended(_first_offset: int) -> None:
            group.dead = True
            slot.group = classic

        records = [*slot.tombstones(), (key, encode_group(classic.snapshot({})))]
        await slot.write(self._runtime.journal, records, GROUP_ERRORS, appended=on_appended)
        return not isinstance(slot.group, ConsumerGroup | ShareGroup | StreamsGroup)

    async def expire(self, slot: GroupEntry) -> None:
        """Remove the members whose timers have expired."""
        group = slot.group
        if not isinstance(group, ConsumerGroup) or group.dead:
            return
        limits, now_ms = self._limits(group.group_id), self._runtime.clock_ms()
        topics = self.topics.of(group.group_id, gated=group.gated_by_broker())
        decision, over = departure.fence(group, topics=topics, limits=limits, now_ms=now_ms)
        with removing(self._runtime, slot, over, now_ms):
            await self._take(slot, decision)

    def on_loaded(self, slot: GroupEntry) -> None:
        """Restart the session timers of a group that was read from the journal."""
        group = slot.group
        if not isinstance(group, ConsumerGroup):
            return
        departure.restart_session_timers(group, self._limits(group.group_id), self._runtime.clock_ms())

    # --- regular expressions -------------------------------------------------------------------------------------

    def _resolve(self, slot: GroupEntry, to_resolve: frozenset[str], may_describe: MayDescribe) -> None:
        if slot.group_id not in self._resolving:
            self._resolving.add(slot.group_id)
            self._runtime.background.spawn(self._resolve_now(slot, to_resolve, may_describe))

    async def _resolve_now(self, slot: GroupEntry, to_resolve: frozenset[str], may_describe: MayDescribe) -> None:
        self._resolving.discard(slot.group_id)
        group, now_ms = slot.group, self._runtime.clock_ms()
        if not isinstance(group, ConsumerGroup) or group.dead:
            return
        topics = self.topics.of(slot.group_id, gated=group.gated_by_broker())
        found = regular_expressions.resolve(
            to_resolve, topics.names(), may_describe, version=topics.newest_topic, now_ms=now_ms
        )
        decision = expressions.apply_resolved(
            group, found, topics=topics, limits=self._limits(slot.group_id), now_ms=now_ms
        )
        try:
            await self._take(slot, decision)
        except KafkaError as error:
            log.warning("cannot resolve the topic expressions of %s yet: %s", slot.group_id, error)
        finally:
            self._runtime.reschedule(slot)

    # --- the journal ---------------------------------------------------------------------------------------------

    async def _take(self, slot: GroupEntry, decision: Decision, made: Decision | None = None) -> None:
        """Write a decision to the journal and apply it. Raises KafkaError if that failed or replication was too slow.

        `made` is the decision that created the group, if the entry does not hold it yet.
        """
        group = decision.group
        if not decision.records:
            _carry_out(decision)
            self._update_withheld(slot, decision)
            if slot.end_offset:
                await self._runtime.journal.wait_replicated(slot.partition, slot.end_offset, CONSUMER_GROUP_ERRORS)
            return
        encoded: list[tuple[bytes, bytes | None]] = []
        if slot.group is not group and not slot.untouched:
            encoded.append((encode_key(GroupMetadataKey(group=group.group_id)), None))
        for one in (made, decision):
            encoded += map(group_records.encode, () if one is None else one.records)
        if decision.becomes is not None:
            encoded.append((encode_key(GroupMetadataKey(group=group.group_id)), encode_group(decision.becomes)))

        def on_appended(first_offset: int) -> None:
            slot.end_offset = first_offset + len(encoded)
            if slot.group is not group:
                self._replace(slot, group, made)
            before = group.epoch
            for record in decision.records:
                group.apply(record)
            _carry_out(decision)
            self._update_withheld(slot, decision)
            if decision.becomes is not None:
                group.dead = True
                log.info("converting group %s to a classic group: its last KIP-848 member left", group.group_id)
                self._runtime.downgrade(slot, decision.becomes)
            elif group.epoch != before:
                log.debug("%s", group.describe())
                self._runtime.run(slot, RebalanceRequired(ErrorCode.REBALANCE_IN_PROGRESS))

        await slot.write(self._runtime.journal, encoded, CONSUMER_GROUP_ERRORS, appended=on_appended)

    def _replace(self, slot: GroupEntry, group: ConsumerGroup, made: Decision | None) -> None:
        """Replace a classic group by a KIP-848 group; its waiting requests get REBALANCE_IN_PROGRESS."""
        if len(slot.classic.members):
            log.info("converting group %s to a KIP-848 group", group.group_id)
        self._runtime.apply(slot, Close(ErrorCode.REBALANCE_IN_PROGRESS))
        slot.group = group
        if made is not None:
            _carry_out(made)

    # --- administration ------------------------------------------------------------------------------------------

    async def describe(self, group_id: str) -> DescribedGroup:
        """Describe the replicated state of a group. Raises GROUP_ID_NOT_FOUND, and what `GroupTable.find` does."""
        slot = self._runtime.table.find(group_id)
        if slot is None or not isinstance(slot.group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} is not a KIP-848 group")
        group = slot.group  # it may become a classic group meanwhile
        await self._runtime.journal.wait_replicated(slot.partition, slot.end_offset, CONSUMER_GROUP_ERRORS)
        limits = self._limits(group_id)
        return administration.describe(group, self.topics.of(group_id), limits.assignors)

    def subscribed_topics(self, group_id: str) -> frozenset[str]:
        """Return the topics that the members of a group subscribe to; none for an unknown group. Raises KafkaError."""
        slot = self._runtime.table.find(group_id)
        group = None if slot is None else slot.group
        return group.subscribed_topics() if isinstance(group, ConsumerGroup) else frozenset()


def _needs_gates(slot: GroupEntry, member_id: str, *, holds_gates: bool) -> bool:
    """Return whether the group has a stock member, given whether this member holds gates."""
    group = slot.group
    if isinstance(group, ConsumerGroup):
        return not holds_gates or group.gated_by_broker(but=member_id)
    return not holds_gates or not all(isinstance(one, FormerMember) and one.holds_gates for one in group.members)


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
        session_timeout_ms=answer.session_timeout_ms,
        assignment=None
        if assigned is None
        else Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=row.topic_id, partitions=row.partitions) for row in to_rows(assigned)
            ]
        ),
    )
