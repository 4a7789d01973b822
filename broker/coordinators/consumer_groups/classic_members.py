"""Classic members in a KIP-848 group, while an application moves from one protocol to the other.

For such a client the group looks classic: it joins, is told that another member leads, gets its assignment from
SyncGroup, and learns from heartbeats that it has to rejoin. Its generation is its member epoch, its assignment the
coordinator's, and a rejoin reports the partitions that it has revoked.

Source: KIP-848; Kafka's GroupMetadataManager of 4.1 (classicGroupJoinToConsumerGroup and its siblings).
"""

from __future__ import annotations

import dataclasses
from typing import Final

from anabranch.broker.coordinators.classic_groups import group_responses as responses
from anabranch.broker.coordinators.classic_groups.group_events import Heartbeat, Join, Leave, Sync
from anabranch.broker.coordinators.consumer_groups.admission import (
    check_room,
    known_instance,
    static_joiner,
    update_expressions,
)
from anabranch.broker.coordinators.consumer_groups.classic_assignment import by_ids, encode
from anabranch.broker.coordinators.consumer_groups.consumer_group import ConsumerGroup
from anabranch.broker.coordinators.consumer_groups.decision import Decision
from anabranch.broker.coordinators.consumer_groups.departure import remove_members
from anabranch.broker.coordinators.consumer_groups.member import UNRELEASED, UNREVOKED, ClassicMember, Member, ascending
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.protocol import consumer_protocol
from anabranch.protocol.apis.join_group import JoinGroupResponse
from anabranch.protocol.apis.leave_group import MemberIdentity
from anabranch.protocol.apis.sync_group import SyncGroupResponse
from anabranch.protocol.consumer_protocol import PROTOCOL_TYPE, ConsumerProtocolSubscription
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError

FIRST_JOIN_WITH_KNOWN_IDS: Final = 4


def apply(decision: Decision, event: Join | Sync | Heartbeat | Leave, new_id: str) -> None:
    """Handle a request of the classic protocol. `new_id` is for a client without a member id. Raises KafkaError."""
    match event:
        case Join():
            join(decision, event, new_id)
        case Sync():
            sync(decision, event)
        case Heartbeat():
            heartbeat(decision, event)
        case Leave():
            leave(decision, event)


# --- joining -----------------------------------------------------------------------------------------------------


def join(decision: Decision, event: Join, new_id: str) -> None:
    """Handle JoinGroup: add the member, or reconcile it by one step. Raises KafkaError."""
    group, request = decision.group, event.request
    unknown = request.member_id == ""
    member_id = new_id if unknown else request.member_id
    check_room(decision, member_id)
    check_protocols(group, event)
    instance_id = request.group_instance_id
    if unknown and instance_id is None and event.version >= FIRST_JOIN_WITH_KNOWN_IDS:
        decision.answer = responses.join_refusal(event, ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        return
    replaced: Member | None = None
    if instance_id is None:
        before = group.members.get(member_id) or Member(member_id=member_id)
    elif unknown:
        before, replaced = static_joiner(decision, instance_id, member_id, classic=True)
    else:
        before = known_instance(group, instance_id, member_id)
    protocols = protocols_of(event)
    subscription = subscription_of(protocols)
    after = _with_join(before, event, subscription, protocols)
    changed = group.epoch == 0
    if after != before:
        decision.write_metadata(after)
        changed = changed or after.topic_names != before.topic_names
    changed = update_expressions(decision, before, after) or changed
    epoch = decision.bump_if_needed(before, after, changed=changed)
    target_epoch, target = decision.retarget_if_needed(epoch, after, replaced)
    owned = by_ids(subscription.owned_partitions, decision.topics)
    settled = decision.reconcile(after, target_epoch, target, owned)
    decision.cancel_timer(member_id, Timer.JOIN)
    decision.set_timer(member_id, Timer.SESSION, request.session_timeout_ms)
    decision.set_timer(member_id, Timer.SYNC, after.rebalance_timeout_ms)
    decision.answer = JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=settled.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocols[0][0],
        leader="",
        member_id=member_id,
        members=[],
    )


def protocols_of(event: Join) -> tuple[tuple[str, bytes], ...]:
    """Return the client's protocols in order of preference. Raises INCONSISTENT_GROUP_PROTOCOL if there are none."""
    if not event.request.protocols:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return tuple((one.name, bytes(one.metadata)) for one in event.request.protocols)


def check_protocols(group: ConsumerGroup, event: Join) -> None:
    """Raise INCONSISTENT_GROUP_PROTOCOL unless the client shares a protocol with all other classic members."""
    names = {one.name for one in event.request.protocols}
    for member in group.classic_members:
        assert member.classic is not None
        if member.member_id != event.request.member_id:
            names &= {name for name, _ in member.classic.protocols}
    if event.request.protocol_type != PROTOCOL_TYPE or not names:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def subscription_of(protocols: tuple[tuple[str, bytes], ...]) -> ConsumerProtocolSubscription:
    """Return the subscription in a member's first protocol. Raises INCONSISTENT_GROUP_PROTOCOL."""
    try:
        return consumer_protocol.decode_subscription(protocols[0][1])
    except DecodeError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"not a consumer subscription: {error}") from None


def _with_join(
    before: Member,
    event: Join,
    subscription: ConsumerProtocolSubscription,
    protocols: tuple[tuple[str, bytes], ...],
) -> Member:
    request = event.request
    known = request.rebalance_timeout_ms >= 0
    return dataclasses.replace(
        before,
        instance_id=request.group_instance_id or before.instance_id,
        rack_id=subscription.rack_id or before.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms if known else request.session_timeout_ms,
        topic_names=ascending(subscription.topics),
        client_id=event.client_id,
        client_host=event.client_host,
        classic=ClassicMember(session_timeout_ms=request.session_timeout_ms, protocols=protocols),
        holds_gates=request.holds_gates,
    )


# --- syncing, heartbeats and leaving -----------------------------------------------------------------------------


def require_classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    """Return the sender if it is a classic member with this generation. Raises KafkaError."""
    member = group.member(member_id) if instance_id is None else known_instance(group, instance_id, member_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} uses the consumer protocol")
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"generation {generation} is not the member's {member.epoch}")
    return member


def sync(decision: Decision, event: Sync) -> None:
    """Handle SyncGroup: return the member's assignment. Raises KafkaError."""
    request, group = event.request, decision.group
    member = require_classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    classic = member.classic
    assert classic is not None
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, classic.protocol):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.epoch > member.epoch and member.state is not UNREVOKED:
        _await_join(decision, member)
        decision.answer = responses.sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS)
        return
    decision.cancel_timer(member.member_id, Timer.SYNC)
    decision.set_timer(member.member_id, Timer.SESSION, classic.session_timeout_ms)
    decision.answer = SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=encode(member.assigned, classic, decision.topics),
    )


def heartbeat(decision: Decision, event: Heartbeat) -> None:
    """Handle Heartbeat: extend the session, and tell the member whether to rejoin. Raises KafkaError."""
    request, group = event.request, decision.group
    member = require_classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    decision.set_timer(member.member_id, Timer.SESSION, member.classic.session_timeout_ms)
    has_to_join = (
        member.epoch < group.epoch
        or member.state is UNREVOKED
        or (member.state is UNRELEASED and not _still_waits(group, member))
    )
    if has_to_join:
        _await_join(decision, member)
    decision.answer = responses.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS if has_to_join else ErrorCode.NONE)


def _await_join(decision: Decision, member: Member) -> None:
    due_ms = decision.now_ms + member.rebalance_timeout_ms
    decision.then.append(lambda: decision.group.timers.set_if_absent(member.member_id, Timer.JOIN, due_ms))


def _still_waits(group: ConsumerGroup, member: Member) -> bool:
    """Return whether other members still have partitions of the member's target."""
    return any(
        not group.is_free(topic_id, index)
        for topic_id, target in group.target(member.member_id).items()
        for index in target - member.assigned.get(topic_id, frozenset())
    )


def leave(decision: Decision, event: Leave) -> None:
    """Handle LeaveGroup for one or several members."""
    rows: list[tuple[MemberIdentity, ErrorCode]] = []
    going: dict[str, Member] = {}
    for one in responses.leaving(event):
        try:
            member = _leaving(decision, one)
            going[member.member_id] = member
            rows.append((one, ErrorCode.NONE))
        except KafkaError as error:
            rows.append((one, error.code))
    if going:
        remove_members(decision, going.values())
    decision.answer = responses.leave_response(event, rows)


def _leaving(decision: Decision, one: MemberIdentity) -> Member:
    group = decision.group
    if one.group_instance_id is None:
        member = group.member(one.member_id)
    else:
        named = group.static_member(one.group_instance_id)
        by_admin = one.member_id == "" and named is not None  # an administrator sends the instance id only
        member_id = named.member_id if by_admin and named is not None else one.member_id
        member = known_instance(group, one.group_instance_id, member_id)
    if member.classic is None and not decision.limits.leave_group_removes_all_kinds:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member.member_id} uses the consumer protocol")
    return member
