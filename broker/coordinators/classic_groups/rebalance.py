"""The rebalance of a classic group: the join phase, its end, and the assignment that makes the generation Stable.

The join phase ends when all members have joined again and every pending id has joined, or at the longest rebalance
timeout of a member; members that have not joined are then dropped, unless they are static. The first phase of an Empty
group is prolonged while new members arrive within the initial delay. If the journal rejects a generation's assignment,
the group rebalances again: no member acts on an assignment that a new coordinator would not know.

Source: GroupCoordinator.scala of Kafka (prepareRebalance, onCompleteJoin, InitialDelayedJoin, doSyncGroup).
"""

from __future__ import annotations

from anabranch.broker.coordinators.classic_groups import group_responses as responses
from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import Assignable, GatedPartitions, Persisted, Sync
from anabranch.broker.coordinators.classic_groups.group_state import COMPLETING, EMPTY, PREPARING, STABLE
from anabranch.broker.coordinators.classic_groups.members import Member
from anabranch.broker.coordinators.classic_groups.pending_responses import answer_joins, answer_syncs, drop, hold_sync
from anabranch.protocol.consumer_protocol import assigned_only
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError


def start(group: ClassicGroup, now_ms: int) -> None:
    """Start a join phase, unless one is active. The caller checks whether it is already complete."""
    if group.state is PREPARING:
        return
    if group.state is COMPLETING:
        answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
    group.assignment_phase.end()
    group.withhold_nothing()
    if group.state is EMPTY:
        group.join_phase.begin_delayed(
            now_ms, group.members.rebalance_timeout_ms, group.limits.initial_rebalance_delay_ms
        )
    else:
        group.join_phase.begin(now_ms, group.members.rebalance_timeout_ms)
    group.move(PREPARING)
    group.require_rebalance(ErrorCode.REBALANCE_IN_PROGRESS)


def continue_after_loss(group: ClassicGroup, size_before: int, now_ms: int) -> None:
    """Rebalance after members or pending ids were removed, or end the join phase that waited for them."""
    if len(group.members) < size_before and group.state in (COMPLETING, STABLE):
        start(group, now_ms)
    end_join_phase_if_complete(group, now_ms)


def end_join_phase_if_complete(group: ClassicGroup, now_ms: int) -> None:
    """End the join phase if all members have joined; an Empty group's first phase lasts until its delay ends."""
    if group.state is not PREPARING:
        return
    phase = group.join_phase
    if phase.delayed:
        if phase.is_due(now_ms) and not phase.prolong(now_ms, group.limits.initial_rebalance_delay_ms):
            end_join_phase(group, now_ms)
    elif group.members.joining_count == len(group.members) and not group.members.pending:
        end_join_phase(group, now_ms)


def end_join_phase(group: ClassicGroup, now_ms: int) -> None:
    """Start the next generation with the members that have joined, and static members that have not."""
    for member in [one for one in group.members if one.joining is None and one.instance_id is None]:
        drop(group, member)
    if len(group.members) and not group.members.elect_joined_leader():
        group.join_phase.begin(now_ms, group.members.rebalance_timeout_ms)  # only unjoined static members are left
        return
    group.begin_generation()
    if not len(group.members):
        group.move(EMPTY)
        group.persist({})
        return
    group.move(COMPLETING)
    group.assignment_phase.begin(group.members.by_id, now_ms + group.members.rebalance_timeout_ms)
    answer_joins(group, now_ms)


# --- the assignment ----------------------------------------------------------------------------------------------


def sync(group: ClassicGroup, event: Sync, now_ms: int) -> None:
    """Handle a SyncGroup request: store the leader's assignment, or return the member's. Raises KafkaError."""
    request = event.request
    group.check_alive()
    member = group.require_member(request.member_id, request.group_instance_id, request.generation_id)
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is PREPARING:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    group.assignment_phase.remove_pending_sync(member.member_id)
    if group.state is STABLE:
        member.touch(now_ms)
        # A returning static member gets the stored assignment; a commit that moved back may have closed a gate since.
        left, refused = without_closed(member, member.assignment, event.assignable)
        group.withhold(refused)
        group.answer(event.ticket, responses.sync_response(group, member, left))
        return
    assert group.state is COMPLETING, f"{group.describe()}: a member in a group without members"
    hold_sync(group, member, event.ticket)
    if member.member_id == group.members.leader_id and not group.assignment_phase.proposed:  # else one is being stored
        group.persist(group.assignment_phase.propose(group.members.by_id, assignment_in(group, event)))


def on_assignment_stored(group: ClassicGroup, event: Persisted, now_ms: int) -> None:
    """Handle the journal's outcome for an assignment: make the group Stable, or rebalance after a failure."""
    proposed = group.assignment_phase.proposed
    if group.state is not COMPLETING or event.generation != group.generation or not proposed:
        return  # the group has changed since, and a newer record follows
    if event.error is not ErrorCode.NONE:
        answer_syncs(group, event.error, now_ms)
        start(group, now_ms)
        return
    group.become_stable()
    answer_syncs(group, ErrorCode.NONE, now_ms)


# --- partitions withheld from stock members ----------------------------------------------------------------------


def assignment_in(group: ClassicGroup, event: Sync) -> dict[str, bytes]:
    """Return the leader's assignment per member, without partitions whose gates are closed."""
    given: dict[str, bytes] = {}
    for row in event.request.assignments:
        member = group.members.by_id.get(row.member_id)
        if member is not None:
            left, refused = without_closed(member, bytes(row.assignment), event.assignable)
            given.update({row.member_id: left})
            group.withhold(refused)
    return given


def without_closed(
    member: Member, assignment: bytes, assignable: Assignable
) -> tuple[bytes, frozenset[tuple[str, int]]]:
    """Return the part of an assignment that a member may have, and the withheld partitions (R9, held by the broker)."""
    if member.holds_gates or not assignable:
        return assignment, frozenset()
    try:
        left, refused = assigned_only(
            assignment, lambda topic, index: topic not in assignable or index in assignable[topic]
        )
    except DecodeError:
        return assignment, frozenset()
    return left, frozenset(refused)


def on_gated_partitions(group: ClassicGroup, event: GatedPartitions) -> None:
    """Record partitions that no member has; after a later rebalance, the next assignment determines them."""
    if group.state is STABLE:
        group.withhold(event.partitions)


def on_gates_opened(group: ClassicGroup, now_ms: int) -> None:
    """Rebalance if partitions of the current assignment are withheld."""
    if group.withheld and group.state in (COMPLETING, STABLE):
        start(group, now_ms)
        end_join_phase_if_complete(group, now_ms)
