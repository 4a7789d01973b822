"""JoinGroup in a classic group: which clients become members, and under which member id.

A new dynamic member first gets its id in an error response and joins again with it (KIP-394): if that response is lost,
no orphaned member remains. A static member (KIP-345) that joins without its id replaces its previous incarnation; if it
offers the same protocols, the group does not rebalance. `rebalance` decides what a join triggers.

Source: Kafka's GroupCoordinator.scala (doNewMemberJoinGroup, doCurrentMemberJoinGroup, updateStaticMemberAndRebalance).
"""

from __future__ import annotations

import uuid

from anabranch.broker.coordinators.classic_groups import group_responses as responses
from anabranch.broker.coordinators.classic_groups import rebalance
from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import Answer, Join, Persisted, Replaced
from anabranch.broker.coordinators.classic_groups.group_state import COMPLETING, DEAD, EMPTY, PREPARING, STABLE
from anabranch.broker.coordinators.classic_groups.members import Member, protocols_of
from anabranch.broker.coordinators.classic_groups.pending_responses import answer_all, drop, hold_join
from anabranch.protocol.errors import ErrorCode, KafkaError


def join(group: ClassicGroup, event: Join, now_ms: int) -> None:
    """Handle a JoinGroup request. Raises KafkaError."""
    request = event.request
    if not group.limits.admits(request.session_timeout_ms):
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
    if not has_room(group, request.member_id):
        group.members.remove_pending_member(request.member_id)
        group.answer(event.ticket, responses.join_refusal(event, ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=""))
        if request.member_id in group.members.by_id:  # the last member to rejoin a group above its size limit
            drop(group, group.members.by_id[request.member_id])
        rebalance.end_join_phase_if_complete(group, now_ms)
        return
    group.check_alive()
    if not shares_protocol(group, event):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.member_id == "":
        join_unknown(group, event, now_ms)
    elif request.member_id in group.members.pending:
        admit(group, event, request.member_id, now_ms)
    else:
        rejoin(group, event, now_ms)
    rebalance.end_join_phase_if_complete(group, now_ms)


def has_room(group: ClassicGroup, member_id: str) -> bool:
    """Return whether the group's size limit allows this member."""
    member = group.members.by_id.get(member_id)
    if group.state in (EMPTY, DEAD):
        return True
    if group.state is PREPARING:
        waiting = member is not None and member.joining is not None
        return waiting or group.members.joining_count < group.limits.size_max
    return member is not None or len(group.members) < group.limits.size_max


def shares_protocol(group: ClassicGroup, event: Join) -> bool:
    """Return whether the client shares a protocol with all members; an Empty group accepts any protocol."""
    names = {protocol.name for protocol in event.request.protocols}
    if group.state is EMPTY or not len(group.members):
        return bool(event.request.protocol_type and names)
    return event.request.protocol_type == group.protocol_type and not names.isdisjoint(group.members.common_protocols())


def join_unknown(group: ClassicGroup, event: Join, now_ms: int) -> None:
    """Handle a join without a member id."""
    instance_id = event.request.group_instance_id
    member_id = f"{instance_id or event.client_id}-{draw_uuid(group)}"
    if instance_id is not None:
        if instance_id in group.members.static:
            replace_static(group, event, member_id, now_ms)
        else:
            admit(group, event, member_id, now_ms)
    elif event.version >= 4:
        group.members.add_pending_member(member_id, now_ms + event.request.session_timeout_ms)
        group.answer(event.ticket, responses.join_refusal(event, ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    else:
        admit(group, event, member_id, now_ms)


def draw_uuid(group: ClassicGroup) -> str:
    """Draw the random part of a member id."""
    return str(uuid.UUID(int=group.rng.getrandbits(128), version=4))


def admit(group: ClassicGroup, event: Join, member_id: str, now_ms: int) -> None:
    """Add a new member and start a rebalance."""
    member = Member(
        member_id=member_id,
        instance_id=event.request.group_instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=0,
        session_timeout_ms=0,
        protocols=(),
        is_new=True,
    )
    group.add_member(member, event.request.protocol_type)
    hold_join(group, member, event, now_ms)
    if group.state is PREPARING and group.generation == 0:
        group.join_phase.note_others_joined()
    rebalance.start(group, now_ms)


def rejoin(group: ClassicGroup, event: Join, now_ms: int) -> None:
    """Handle a join with a member id: a lost response, changed protocols, or a rebalance."""
    request = event.request
    member = group.members.check(request.member_id, request.group_instance_id)
    unchanged = member.protocols == protocols_of(request)
    if group.state is COMPLETING and unchanged:
        group.answer(event.ticket, responses.join_response(group, member))  # the response to its last join was lost
        member.touch(now_ms)
    elif group.state is STABLE and unchanged and member.member_id != group.members.leader_id:
        group.answer(event.ticket, responses.join_response(group, member))
        member.touch(now_ms)
    elif group.state in (PREPARING, COMPLETING, STABLE):
        hold_join(group, member, event, now_ms)
        rebalance.start(group, now_ms)
    else:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)


def replace_static(group: ClassicGroup, event: Join, member_id: str, now_ms: int) -> None:
    """Replace a static member that joined without its id; no rebalance if the protocol stays the same (KIP-345)."""
    old_leader = group.members.leader_id or ""
    old_id = group.members.static[event.request.group_instance_id or ""]
    member = group.members.by_id[old_id]
    answer_all(group, member, ErrorCode.FENCED_INSTANCE_ID)
    group.assignment_phase.rename(old_id, member_id)
    group.members.replace_static(member, member_id)
    before = Replaced(
        instance_id=member.instance_id or "",
        old_id=old_id,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.protocols,
        holds_gates=member.holds_gates,
    )
    member.adopt(event)
    if group.state is STABLE and group.members.choose_protocol() == group.protocol:
        member.touch(now_ms)
        response = responses.joined_without_rebalance(group, member, event, old_leader)
        assignments = {one.member_id: one.assignment for one in group.members}
        group.persist(assignments, Answer(event.ticket, response), before)
        return
    hold_join(group, member, event, now_ms)
    rebalance.start(group, now_ms)


def on_static_member_stored(group: ClassicGroup, event: Persisted, now_ms: int) -> None:
    """Handle the journal's outcome for a static member's new id; undo the replacement if it was not stored."""
    answer, before = event.answer, event.replaced
    assert answer is not None and before is not None
    if event.error is ErrorCode.NONE:
        group.answer(answer.ticket, answer.response)
        return
    group.answer(answer.ticket, responses.with_error(answer.response, event.error))
    current = group.members.static.get(before.instance_id)
    if current is not None and current == answer.response.member_id:
        member = group.members.by_id[current]
        answer_all(group, member, event.error)
        group.members.replace_static(member, before.old_id)
        member.give_back(before)
        member.touch(now_ms)
