"""The responses of a group: pure functions from what the group knows to what the wire says.

A refused JoinGroup names no protocol; up to v6 the wire cannot say "none" and says "" instead.
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
    """The answer that tells a request it was refused."""
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
            raise AssertionError(f"{event} has no ticket and cannot be answered")
        case _:
            assert_never(event)


def unknown_group(event: Join | Sync | Heartbeat | Leave, limits: GroupLimits) -> Any:
    """The answer about a group that this coordinator does not know, so that it knows no members of it either."""
    if isinstance(event, Leave):
        return left(event, [(one, ErrorCode.UNKNOWN_MEMBER_ID) for one in leaving(event)])
    if isinstance(event, Join) and not limits.admits(event.request.session_timeout_ms):
        return refusal(event, ErrorCode.INVALID_SESSION_TIMEOUT).response
    return refusal(event, ErrorCode.UNKNOWN_MEMBER_ID).response


def error_reason(event: Event) -> str:
    """What a change is due to, with the client's own reason where it gives one (KIP-800)."""
    match event:
        case Join(request=request):
            return f"{request.member_id or event.client_id} joins ({request.reason or 'no reason given'})"
        case Leave():
            rows = leaving(event)
            return ", ".join(f"{one.member_id or one.group_instance_id} leaves ({one.reason or '-'})" for one in rows)
        case _:
            return type(event).__name__


def join_refusal(event: Join, error: ErrorCode, *, member_id: str) -> JoinGroupResponse:
    """Not a member, or not yet: `member_id` is the id to come back with, if there is one."""
    named = event.version < FIRST_VERSION_WITHOUT_PROTOCOL_NAME
    return JoinGroupResponse(
        error_code=error, protocol_name="" if named else None, leader="", member_id=member_id, members=[]
    )


def joined(group: ClassicGroup, member: Member) -> JoinGroupResponse:
    """A member of the current generation; its leader also learns who the others are."""
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
    """A static member is back in an undisturbed group (KIP-345, KIP-814).

    A leader of v9 is told to skip the assignment; an older one must believe that another member leads, or it would
    make one.
    """
    response = joined(group, member)
    if event.version >= FIRST_VERSION_THAT_SKIPS_ASSIGNMENT:
        return dataclasses.replace(response, skip_assignment=member.member_id == group.members.leader_id)
    return dataclasses.replace(response, leader=old_leader, members=[])


def with_error(response: JoinGroupResponse, error: ErrorCode) -> JoinGroupResponse:
    """A join that succeeded but could not be remembered."""
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


def synced(group: ClassicGroup, member: Member, assignment: bytes | None = None) -> SyncGroupResponse:
    """The answer with a member's assignment, or with what is left of it."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment if assignment is None else assignment,
    )


def sync_refusal(error: ErrorCode) -> SyncGroupResponse:
    """No assignment."""
    return SyncGroupResponse(error_code=error, assignment=b"")


def heartbeat(error: ErrorCode) -> HeartbeatResponse:
    """Carry on, or not."""
    return HeartbeatResponse(error_code=error)


def leaving(event: Leave) -> list[MemberIdentity]:
    """The members that want to leave, in either form of the request."""
    if event.version < FIRST_VERSION_WITH_SEVERAL_LEAVING:
        return [MemberIdentity(member_id=event.request.member_id)]
    return event.request.members


def left(event: Leave, rows: Iterable[tuple[MemberIdentity, ErrorCode]]) -> LeaveGroupResponse:
    """The answer with the outcome of each member. The single-member versions have one error, on top."""
    members = [
        MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error)
        for one, error in rows
    ]
    alone = event.version < FIRST_VERSION_WITH_SEVERAL_LEAVING
    return LeaveGroupResponse(error_code=members[0].error_code if alone else ErrorCode.NONE, members=members)


def described(group: ClassicGroup, *, last_assignments: bool = False) -> DescribedGroup:
    """The group for administrators; metadata and assignments are only shown while they are in force.

    With `last_assignments` those of the last generation are shown while the group rebalances, too.
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
    """What members without gates are not given, and why, as both kinds of groups tell it."""
    topics: dict[str, list[WithheldPartition]] = {}
    for (topic, index), reason in withheld.items():
        topics.setdefault(topic, []).append(WithheldPartition(partition_index=index, reason=reason))
    return [WithheldTopic(name=name, partitions=rows) for name, rows in topics.items()]


def not_described(group_id: str, error: ErrorCode) -> DescribedGroup:
    """A group that does not exist (Dead, no error up to v5, as Kafka says it) or is not here."""
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
