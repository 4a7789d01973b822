"""Requests about streams groups (KIP-1071): members and their tasks.

Decisions are written to the journal as those of KIP-848 groups are. Source: Kafka's GroupCoordinatorService
(streamsGroupHeartbeat, streamsGroupDescribe).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.consumer_groups.member import JOIN_EPOCH
from anabranch.broker.coordinators.groups.member_removal import removing
from anabranch.broker.coordinators.runtime.journal import CONSUMER_GROUP_ERRORS
from anabranch.broker.coordinators.streams_groups import streams_heartbeat
from anabranch.broker.coordinators.streams_groups.streams_administration import describe, endpoints
from anabranch.broker.coordinators.streams_groups.streams_admission import check_request
from anabranch.broker.coordinators.streams_groups.streams_decision import StreamsAnswer
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.broker.coordinators.streams_groups.streams_settings import StreamsSettings, settings_of
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import GroupMetadataKey, encode_key
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.coordinators.consumer_groups.heartbeat import Sender
    from anabranch.broker.coordinators.consumer_groups.metadata_topics import MetadataTopics
    from anabranch.broker.coordinators.groups.group_runtime import GroupRuntime
    from anabranch.broker.coordinators.groups.group_shards import GroupEntry
    from anabranch.protocol.apis.streams_group_describe import DescribedGroup
    from anabranch.protocol.apis.streams_group_heartbeat import (
        EndpointToPartitions,
        StreamsGroupHeartbeatRequest,
        TopicInfo,
    )

log: Final = logging.getLogger(__name__)


@value(kw_only=True)
class HeartbeatOutcome:
    """The response to a member, and the topics to create for its group."""

    answer: StreamsAnswer
    endpoints: tuple[EndpointToPartitions, ...] | None
    missing: tuple[tuple[TopicInfo, int], ...]
    """Internal topics to create, each with its partition count."""


class StreamsGroupRequests:
    """Handle heartbeats, timers and descriptions of streams groups."""

    def __init__(self, runtime: GroupRuntime, topics: MetadataTopics) -> None:
        self._runtime = runtime
        self._topics = topics

    def _settings(self, group_id: str) -> StreamsSettings:
        return settings_of(self._runtime.settings, self._runtime.group_configs.of(group_id))

    # --- members -------------------------------------------------------------------------------------------------

    async def heartbeat(self, request: StreamsGroupHeartbeatRequest, sender: Sender) -> HeartbeatOutcome:
        """Handle a join, heartbeat or leave; respond when its records are replicated. Raises KafkaError."""
        check_request(request)
        if not self._topics.complete:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the topics are not known yet")
        joins = request.member_epoch == JOIN_EPOCH
        slot = self._runtime.table.find_for_member(request.group_id, joins=joins)
        topics = self._topics.of(request.group_id)
        try:
            decision = streams_heartbeat.heartbeat(
                self._group_for(slot, joins),
                request,
                sender,
                topics=topics,
                settings=self._settings(request.group_id),
                now_ms=self._runtime.clock_ms(),
            )
            await slot.take(self._runtime.journal, decision, before=_making_room(slot, decision.group))
        finally:
            self._runtime.reschedule(slot)
        group, answer = decision.group, decision.answer
        return HeartbeatOutcome(
            answer=answer,
            endpoints=tuple(endpoints(group, topics)) if answer.include_endpoints else None,
            missing=decision.missing,
        )

    def _group_for(self, slot: GroupEntry, joins: bool) -> StreamsGroup:
        """Return the entry's group, or a new one for a member that joins an empty classic group.

        The empty classic group is replaced and its offsets stay, so that an application can change its protocol.
        """
        group = slot.group
        if isinstance(group, StreamsGroup):
            return group
        if joins and slot.deserted and isinstance(group, ClassicGroup):
            return StreamsGroup(slot.group_id)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {slot.group_id} has another group type")

    async def expire(self, slot: GroupEntry) -> None:
        """Remove the members whose timers have expired."""
        group = slot.group
        if not isinstance(group, StreamsGroup) or group.dead:
            return
        settings, now_ms = self._settings(group.group_id), self._runtime.clock_ms()
        topics = self._topics.of(group.group_id)
        decision, over = streams_heartbeat.fence(group, topics=topics, settings=settings, now_ms=now_ms)
        with removing(self._runtime, slot, over, now_ms):
            await slot.take(self._runtime.journal, decision)

    def on_loaded(self, slot: GroupEntry) -> None:
        """Restart the session timers of a group that was read from the journal."""
        if isinstance(slot.group, StreamsGroup):
            streams_heartbeat.restart_session_timers(
                slot.group, self._settings(slot.group_id), self._runtime.clock_ms()
            )

    # --- administration ------------------------------------------------------------------------------------------

    async def group(self, group_id: str) -> tuple[StreamsGroup, DescribedGroup]:
        """Return the replicated state of a group and its description. Raises KafkaError."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        slot = self._runtime.table.find(group_id)
        if slot is None or not isinstance(slot.group, StreamsGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no streams group {group_id}")
        group = slot.group  # it may be deleted meanwhile
        await self._runtime.journal.wait_replicated(slot.partition, slot.end_offset, CONSUMER_GROUP_ERRORS)
        return group, describe(group)


def _making_room(slot: GroupEntry, group: StreamsGroup) -> list[tuple[bytes, bytes | None]]:
    """Return the tombstone of the empty classic group that the streams group replaces."""
    if slot.group is group or slot.untouched:
        return []
    return [(encode_key(GroupMetadataKey(group=slot.group_id)), None)]
