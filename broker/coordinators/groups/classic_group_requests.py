"""Requests of classic members: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A group's state machine decides; a request waits as a future inside it. A classic member may also belong to a KIP-848
group, which then answers it, or turn an empty group of another kind into a classic one. Source: Kafka's
GroupCoordinator.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from anabranch.broker.coordinators.classic_groups import group_responses as responses
from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import Assignable, Heartbeat, Join, Leave, Sync
from anabranch.broker.coordinators.classic_groups.group_state import STABLE, GroupLimits
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from anabranch.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from anabranch.protocol.consumer_protocol import assigned_partitions
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups.consumer_group_requests import ConsumerGroupRequests
    from anabranch.broker.coordinators.groups.group_gates import GroupGates
    from anabranch.broker.coordinators.groups.group_runtime import GroupRuntime
    from anabranch.broker.coordinators.groups.group_shards import GroupEntry


class ClassicGroupRequests:
    """Handle the requests of classic members."""

    def __init__(self, runtime: GroupRuntime, consumers: ConsumerGroupRequests, gates: GroupGates) -> None:
        self._runtime = runtime
        self._consumers = consumers
        self._gates = gates

    async def join(
        self, request: JoinGroupRequest, *, version: int, client_id: str, client_host: str
    ) -> JoinGroupResponse:
        """Add a member; the response waits for the end of the join phase."""
        event = Join(
            ticket=self._ticket(), request=request, version=version, client_id=client_id, client_host=client_host
        )
        response: JoinGroupResponse = await self._submit(request.group_id, event, create=request.member_id == "")
        slot = self._runtime.table.slots.get(request.group_id)
        if slot is not None and request.member_id == "" and request.group_instance_id is not None:
            self._gates.on_loaded(slot)  # a returning static member syncs no assignment: find partitions created since
        return response

    async def sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Store the leader's assignment or return the member's; the response waits until the assignment is stored."""
        event = Sync(ticket=self._ticket(), request=request, assignable=await self._assignable(request))
        response: SyncGroupResponse = await self._submit(request.group_id, event)
        if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return responses.sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS)  # makes the member rejoin
        return response

    async def _assignable(self, request: SyncGroupRequest) -> Assignable:
        """Return the partitions that stock members may have, if the request writes or reads an assignment."""
        slot = self._runtime.table.slots.get(request.group_id)
        group = None if slot is None else slot.group
        if slot is None or not isinstance(group, ClassicGroup) or not group.gated_by_broker:
            return {}
        given = [bytes(row.assignment) for row in request.assignments]
        if not given and group.state is STABLE:
            given = [member.assignment for member in group.members if member.member_id == request.member_id]
        names = sorted({name for one in given for name, _ in assigned_partitions(one)})
        await self._gates.prepare_for_member(slot, names)
        return self._gates.assignable(slot, names)

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Extend the session of a member."""
        event = Heartbeat(ticket=self._ticket(), request=request)
        response: HeartbeatResponse = await self._submit(request.group_id, event)
        if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Kafka answers NONE. Here a member that was replaced while it was paused may rely on this response alone.
            return responses.heartbeat(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return response

    async def leave(self, request: LeaveGroupRequest, *, version: int) -> LeaveGroupResponse:
        """Remove members from a group."""
        event = Leave(ticket=self._ticket(), request=request, version=version)
        response: LeaveGroupResponse = await self._submit(request.group_id, event)
        return response

    def _ticket(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def _submit(self, group_id: str, event: Join | Sync | Heartbeat | Leave, *, create: bool = False) -> Any:
        try:
            if group_id == "":
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            slot = self._runtime.table.find_or_create(group_id) if create else self._runtime.table.find(group_id)
        except KafkaError as error:
            return responses.refusal(event, error.code).response
        if slot is None or isinstance(slot.group, ShareGroup):
            return responses.unknown_group(event, self._runtime.table.limits)
        if isinstance(slot.group, StreamsGroup) and (slot.group.members or not isinstance(event, Join)):
            return _refused_by_streams(event, self._runtime.table.limits)
        if isinstance(slot.group, ConsumerGroup | StreamsGroup):
            try:
                if isinstance(slot.group, ConsumerGroup) and (slot.group.members or not create):
                    return await self._of_consumer_group(slot, slot.group, event)
                made = await self._consumers.make_classic(slot)
            except KafkaError as error:
                return responses.refusal(event, error.code).response
            if not made:  # a member of another protocol joined first
                return await self._submit(group_id, event, create=create)
        self._runtime.apply(slot, event)
        return await event.ticket

    async def _of_consumer_group(
        self, slot: GroupEntry, group: ConsumerGroup, event: Join | Sync | Heartbeat | Leave
    ) -> Any:
        """Handle a classic member's request in a KIP-848 group. Raises KafkaError."""
        if isinstance(event, Join) and not self._runtime.table.limits.admits(event.request.session_timeout_ms):
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        if not group.members:
            return responses.unknown_group(event, self._runtime.table.limits)
        return await self._consumers.classic(slot, event)


def _refused_by_streams(event: Join | Sync | Heartbeat | Leave, limits: GroupLimits) -> Any:
    if isinstance(event, Join):
        return responses.refusal(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL).response
    return responses.unknown_group(event, limits)
