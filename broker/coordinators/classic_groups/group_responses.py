"""The responses of a classic group, as pure functions of its state.

A JoinGroup error names no protocol; up to v6 the field is not nullable and is "" instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import (
    Answer,
    Close,
    Commit,
    Delete,
    Event,
    GatedPartitions,
    GatesOpened,
    Heartbeat,
    Join,
    Leave,
    Observe,
    Persisted,
    Sync,
    Tick,
)
from anabranch.broker.coordinators.classic_groups.group_state import GroupLimits
from anabranch.broker.coordinators.classic_groups.members import Member
from anabranch.protocol.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    WithheldPartition,
    WithheldTopic,
)
from anabranch.protocol.apis.heartbeat import HeartbeatResponse
from anabranch.protocol.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from anabranch.protocol.apis.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from anabranch.protocol.apis.sync_group import SyncGroupResponse
from anabranch.protocol.errors import ErrorCode

FIRST_VERSION_WITHOUT_PROTOCOL_NAME = 7
FIRST_VERSION_THAT_SKIPS_ASSIGNMENT = 9
FIRST_VERSION_WITH_SEVERAL_LEAVING = 3


def refusal(event: Event, error: ErrorCode) -> Answer:
    """Return the error response to a request."""
    match event:
        case Join():
            return Answer(event.ticket, join_refusal(event, error, member_id=event.request.member_id))
        case Sync():
            return Answer(event.ticket, sync_refusal(error))
        case Heartbeat():
            return Answer(event.ticket, heartbeat(error))
        case Leave():
            return Answer(event.ticket, LeaveGroupResponse(error_code=error))
        case Commit() | Observe() | Delete() | Persisted() | GatedPartitions() | GatesOpened() | Tick() | Close():
            raise AssertionError(f"{event} is not a request and has no response")
        case _:
            assert_never(event)


def unknown_group(event: Join | Sync | Heartbeat | Leave, limits: GroupLimits) -> Any:
    """Return the response about a group that this coordinator does not know."""
    if isinstance(event, Leave):
        return leave_response(event, [(one, ErrorCode.UNKNOWN_MEMBER_ID) for one in leaving(event)])
    if isinstance(event, Join) and not limits.admits(event.request.session_timeout_ms):
        return refusal(event, ErrorCode.INVALID_SESSION_TIMEOUT).response
    return refusal(event, ErrorCode.UNKNOWN_MEMBER_ID).response


def error_reason(event: Event) -> str:
    """Return the reason for a change, with the client's own reason if it sends one (KIP-800)."""
    match event:
        case Join(request=request):
            return f"{request.member_id or event.client_id} joins ({request.reason or 'no reason given'})"
        case Leave():
            rows = leaving(event)
            return ", ".join(f"{one.member_id or one.group_instance_id} leaves ({one.reason or '-'})" for one in rows)
        case _:
            return type(event).__name__


def join_refusal(event: Join, error: ErrorCode, *, member_id: str) -> JoinGroupResponse:
    """Return the error response to a JoinGroup; `member_id` is the id to join with, if any."""
    named = event.version < FIRST_VERSION_WITHOUT_PROTOCOL_NAME
    return JoinGroupResponse(
        error_code=error, protocol_name="" if named else None, leader="", member_id=member_id, members=[]
    )


def join_response(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """Return the response to a member of the current generation; the leader's lists all members."""
    leads = member.member_id == group.members.leader_id
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.members.leader_id or "",
        member_id=member.member_id,
        members=_subscriptions(group) if leads else [],
    )


def joined_without_rebalance(group: ClassicGroup, member: Member, event: Join, old_leader: str) -> JoinGroupResponse:
    """Return the response to a static member that rejoins without a rebalance (KIP-345, KIP-814).

    A leader with v9 is told to skip the assignment. An older version is told that another member leads, or it would
    compute one.
    """
    response = join_response(group, member)
    if event.version >= FIRST_VERSION_THAT_SKIPS_ASSIGNMENT:
        return dataclasses.replace(response, skip_assignment=member.member_id == group.members.leader_id)
    return dataclasses.replace(response, leader=old_leader, members=[])


def with_error(response: JoinGroupResponse, error: ErrorCode) -> JoinGroupResponse:
    """Return the error response to a join that could not be stored."""
    return dataclasses.replace(response, error_code=error, member_id="", members=[])


def _subscriptions(group: ClassicGroup) -> list[JoinGroupResponseMember]:
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol),
        )
        for member in group.members
    ]


def sync_response(group: ClassicGroup, member: Member, assignment: bytes | None = None) -> SyncGroupResponse:
    """Return the response with a member's assignment, or the given part of it."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment if assignment is None else assignment,
    )


def sync_refusal(error: ErrorCode) -> SyncGroupResponse:
    """Return an error response without an assignment."""
    return SyncGroupResponse(error_code=error, assignment=b"")


def heartbeat(error: ErrorCode) -> HeartbeatResponse:
    """Return the response to a heartbeat."""
    return HeartbeatResponse(error_code=error)


def leaving(event: Leave) -> list[MemberIdentity]:
    """Return the members that leave, from either form of the request."""
    if event.version < FIRST_VERSION_WITH_SEVERAL_LEAVING:
        return [MemberIdentity(member_id=event.request.member_id)]
    return event.request.members


def leave_response(event: Leave, rows: Iterable[tuple[MemberIdentity, ErrorCode]]) -> LeaveGroupResponse:
    """Return the response with each member's outcome; v0-v2 have one top-level error."""
    members = [
        MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error)
        for one, error in rows
    ]
    alone = event.version < FIRST_VERSION_WITH_SEVERAL_LEAVING
    return LeaveGroupResponse(error_code=members[0].error_code if alone else ErrorCode.NONE, members=members)


def describe_group(group: ClassicGroup, *, last_assignments: bool = False) -> DescribedGroup:
    """Describe the group for administrators; metadata and assignments are filled in while it is Stable.

    With `last_assignments`, those of the last generation are also filled in while the group rebalances.
    """
    stable = group.state.value == "Stable"
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment if stable or last_assignments else b"",
            )
            for member in group.members
        ],
    )


def withheld_topics(withheld: Mapping[tuple[str, int], str]) -> list[WithheldTopic]:
    """Return the withheld partitions with their reasons in the form that descriptions of both kinds of groups have."""
    topics: dict[str, list[WithheldPartition]] = {}
    for (topic, index), reason in withheld.items():
        topics.setdefault(topic, []).append(WithheldPartition(partition_index=index, reason=reason))
    return [WithheldTopic(name=name, partitions=rows) for name, rows in topics.items()]


def describe_missing_group(group_id: str, error: ErrorCode) -> DescribedGroup:
    """Describe a missing group (Dead, without an error up to v5, as in Kafka) or one of another coordinator."""
    missing = error is ErrorCode.GROUP_ID_NOT_FOUND
    return DescribedGroup(
        error_code=error,
        error_message=f"there is no classic group {group_id!r}" if missing else None,
        group_id=group_id,
        group_state="Dead" if missing or error is ErrorCode.NONE else "",
        protocol_type="",
        protocol_data="",
        members=[],
    )
