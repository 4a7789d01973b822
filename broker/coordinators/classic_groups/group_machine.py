"""The state machine of a classic group: `apply(group, event, now_ms) -> effects`. Nothing else changes a group.

The coordinator applies every event of the group (a request, the journal's outcome, a deadline) and runs the effects in
order. A request that must wait is held in its member; a later event answers it exactly once. Deadlines are data:
`ClassicGroup.next_deadline` returns when a `Tick` is due. The machine reads no clock, and draws member ids from the
group's random source.

This module handles heartbeats, leaving, authorization and timeouts; `joining` decides who becomes a member, and
`rebalance` forms generations.

Source: KIP-62, KIP-345 (static members), KIP-394 (member ids), KIP-559, KIP-814; Kafka's GroupCoordinator.scala.
"""

from __future__ import annotations

import random
from typing import assert_never

from anabranch.broker.coordinators.classic_groups import group_responses as responses
from anabranch.broker.coordinators.classic_groups import joining, rebalance
from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import (
    Answer,
    Close,
    Commit,
    Delete,
    Effect,
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
from anabranch.broker.coordinators.classic_groups.group_state import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    GroupLimits,
)
from anabranch.broker.coordinators.classic_groups.pending_responses import answer_all, drop
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import GroupMetadataValue


def apply(group: ClassicGroup, event: Event, now_ms: int, *, date_ms: int | None = None) -> list[Effect]:
    """Apply one event and return its effects. A rejection is an effect, not an exception.

    `date_ms` is the time of day, if `now_ms` is of another clock.
    """
    group.note_date(now_ms if date_ms is None else date_ms)
    try:
        _dispatch(group, event, now_ms)
    except KafkaError as error:
        if isinstance(event, Commit | Observe | Delete):
            group.add_verdict(error.code, error.message)
        else:
            refusal = responses.refusal(event, error.code)
            group.answer(refusal.ticket, refusal.response)
    return group.take_effects()


def restore(
    group_id: str, value: GroupMetadataValue, limits: GroupLimits, rng: random.Random, now_ms: int
) -> ClassicGroup:
    """Restore a group from a journal record for a new coordinator; its members' sessions restart.

    A group above a lowered size limit rebalances; the last members to join are rejected.
    """
    group = ClassicGroup.from_journal(group_id, value, limits, rng, now_ms)
    if len(group.members) > limits.size_max:
        rebalance.start(group, now_ms)
        group.take_effects()  # no request is waiting for these effects yet
    return group


def _dispatch(group: ClassicGroup, event: Event, now_ms: int) -> None:
    match event:
        case Heartbeat():
            heartbeat(group, event, now_ms)
        case Commit():
            authorize_commit(group, event, now_ms)
            group.add_verdict(ErrorCode.NONE)
        case Join():
            joining.join(group, event, now_ms)
        case Sync():
            rebalance.sync(group, event, now_ms)
        case Leave():
            leave(group, event, now_ms)
        case Observe():
            authorize_observe(group, event)
            group.add_verdict(ErrorCode.NONE)
        case Delete():
            authorize_delete(group)
            group.add_verdict(ErrorCode.NONE)
        case Persisted(answer=Answer()):
            joining.on_static_member_stored(group, event, now_ms)
        case Persisted():
            rebalance.on_assignment_stored(group, event, now_ms)
        case GatedPartitions():
            rebalance.on_gated_partitions(group, event)
        case GatesOpened():
            rebalance.on_gates_opened(group, now_ms)
        case Tick():
            tick(group, now_ms)
        case Close():
            close(group, event)
        case _:
            assert_never(event)


# --- heartbeats and leaving --------------------------------------------------------------------------------------


def heartbeat(group: ClassicGroup, event: Heartbeat, now_ms: int) -> None:
    """Extend a member's session; the response tells it whether to rejoin. Raises KafkaError."""
    request = event.request
    group.check_alive()
    member = group.require_member(request.member_id, request.group_instance_id, request.generation_id)
    member.touch(now_ms)
    preparing = group.state is PREPARING
    group.answer(event.ticket, responses.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE))


def leave(group: ClassicGroup, event: Leave, now_ms: int) -> None:
    """Remove members and rebalance the others. Raises COORDINATOR_NOT_AVAILABLE."""
    group.check_alive()
    size_before = len(group.members)
    rows = [(one, _leave_one(group, one.member_id, one.group_instance_id)) for one in responses.leaving(event)]
    group.answer(event.ticket, responses.leave_response(event, rows))
    rebalance.continue_after_loss(group, size_before, now_ms)


def _leave_one(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    if group.members.remove_pending_member(member_id):
        return ErrorCode.NONE
    if member_id == "" and instance_id is not None:
        member_id = group.members.static.get(instance_id, "")  # an administrator sends the instance id only
    try:
        drop(group, group.members.check(member_id, instance_id))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


# --- authorization -----------------------------------------------------------------------------------------------


def authorize_commit(group: ClassicGroup, event: Commit, now_ms: int) -> None:
    """Check that the sender may commit: a member of this generation, or any client while the group is Empty.

    Before KIP-447 (TxnOffsetCommit v0 to v2) producers sent no member with a transactional commit; those are accepted.
    """
    group.check_alive()
    if event.generation < 0 and group.state is EMPTY:
        return
    if event.transactional:
        if event.generation >= 0 or event.member_id or event.instance_id is not None:
            group.require_member(event.member_id, event.instance_id, event.generation)
        return
    member = group.require_member(event.member_id, event.instance_id, event.generation)
    if group.state is COMPLETING:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    member.touch(now_ms)


def authorize_observe(group: ClassicGroup, event: Observe) -> None:
    """Check that the sender may wait for offsets: a member of a Stable group, or any client if the group is Empty."""
    group.check_alive()
    if event.member_id == "" and group.state is EMPTY:
        return
    group.require_member(event.member_id, None, event.generation)
    if group.state is not STABLE:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)


def authorize_delete(group: ClassicGroup) -> None:
    """Raise NON_EMPTY_GROUP while the group has members."""
    if group.state is not EMPTY:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, group.describe())


# --- timeouts and closing ----------------------------------------------------------------------------------------


def tick(group: ClassicGroup, now_ms: int) -> None:
    """Drop members that did not heartbeat, join or sync in time, and pending ids that have expired."""
    size_before = len(group.members)
    group.members.expire_pending_members(now_ms)
    for member in [one for one in group.members if one.session_expired(now_ms)]:
        drop(group, member)
    for member_id in group.assignment_phase.late(now_ms):
        drop(group, group.members.by_id[member_id])
    rebalance.continue_after_loss(group, size_before, now_ms)
    if group.state is PREPARING and not group.join_phase.delayed and group.join_phase.is_due(now_ms):
        rebalance.end_join_phase(group, now_ms)


def close(group: ClassicGroup, event: Close) -> None:
    """Make the group Dead and reject all waiting requests."""
    for member in group.members:
        answer_all(group, member, event.error)
    if group.state is not DEAD:
        group.require_rebalance(event.error)
    group.close()
