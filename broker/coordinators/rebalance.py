"""How a generation of a group comes about: the join phase, its end, and the assignment that makes it Stable.

The join phase ends once all members have joined again and nobody is expected who was only told its id, or at the
slowest member's rebalance timeout: who is silent then is out, unless it is static. The first phase of an Empty group
lasts as long as newcomers keep arriving within the initial delay. A generation that the journal refuses is not lost
but repeated, so that no member ever acts on an assignment that a successor of this coordinator would not know.

Source: GroupCoordinator.scala of Kafka (prepareRebalance, onCompleteJoin, InitialDelayedJoin, doSyncGroup).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.broker.coordinators import group_responses as responses
from anabranch.broker.coordinators.group_events import Answer, Disturbed, Persisted, Sync
from anabranch.broker.coordinators.group_state import COMPLETING, EMPTY, PREPARING, STABLE
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups import Group
    from anabranch.broker.coordinators.members import Member


def start(group: Group, now_ms: int) -> None:
    """Begin a join phase, unless one is on."""
    if group.state is PREPARING:
        return
    if group.state is COMPLETING:
        answer_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        for member in group.members:
            member.assignment = b""
    group.sync_deadline_ms = None
    group.unsynced.clear()
    group.proposed.clear()
    rebalance_timeout_ms = group.members.rebalance_timeout_ms
    if group.state is EMPTY:
        delay_ms = group.limits.initial_rebalance_delay_ms
        group.initial_delay_left_ms = max(rebalance_timeout_ms - delay_ms, 0)
        group.join_deadline_ms = now_ms + delay_ms
    else:
        group.join_deadline_ms = now_ms + rebalance_timeout_ms
    group.joined_meanwhile = False
    group.move(PREPARING, now_ms)
    group.effects.append(Disturbed(ErrorCode.REBALANCE_IN_PROGRESS))
    end_join_phase_if_complete(group, now_ms)


def continue_after_loss(group: Group, size_before: int, now_ms: int) -> None:
    """Members or pending ids are gone: divide their work anew, or end the join phase that waited for them."""
    if len(group.members) < size_before and group.state in (COMPLETING, STABLE):
        start(group, now_ms)
    end_join_phase_if_complete(group, now_ms)


def end_join_phase_if_complete(group: Group, now_ms: int) -> None:
    """End the phase once everybody is there. The very first one lasts until its delay is over."""
    if group.state is not PREPARING:
        return
    if group.initial_delay_left_ms is not None:
        if group.join_deadline_ms is not None and now_ms >= group.join_deadline_ms:
            end_initial_delay(group, now_ms)
    elif group.members.joining_count == len(group.members) and not group.members.pending:
        end_join_phase(group, now_ms)


def end_initial_delay(group: Group, now_ms: int) -> None:
    """The delay is over: wait another one if somebody came meanwhile, within the rebalance timeout."""
    left_ms = group.initial_delay_left_ms or 0
    if group.joined_meanwhile and left_ms > 0:
        delay_ms = min(group.limits.initial_rebalance_delay_ms, left_ms)
        group.joined_meanwhile = False
        group.initial_delay_left_ms = left_ms - delay_ms
        group.join_deadline_ms = now_ms + delay_ms
        return
    group.initial_delay_left_ms = None
    end_join_phase(group, now_ms)


def end_join_phase(group: Group, now_ms: int) -> None:
    """Whoever has joined makes up the next generation."""
    for member in [one for one in group.members if one.joining is None and one.instance_id is None]:
        group.drop(member)
    if len(group.members) and not elect_joined_leader(group):
        group.join_deadline_ms = now_ms + group.members.rebalance_timeout_ms  # only silent static members are left
        return
    group.initial_delay_left_ms = group.join_deadline_ms = None
    group.generation += 1
    group.subscriptions = ()
    if not len(group.members):
        group.protocol = None
        group.move(EMPTY, now_ms)
        group.persist({})
        return
    group.protocol = group.members.choose_protocol()
    group.subscriptions = tuple(member.metadata(group.protocol) for member in group.members)
    group.move(COMPLETING, now_ms)
    group.sync_deadline_ms = now_ms + group.members.rebalance_timeout_ms
    group.unsynced = set(group.members.by_id)
    for member in group.members:
        member.is_new = False
        if member.joining is not None:
            event, member.joining = member.joining, None
            group.answer(event, responses.joined(group, member))
        group.touch(member, now_ms)


def elect_joined_leader(group: Group) -> bool:
    """Keep the leader if it has joined, else let the first member lead that has; False when nobody has."""
    leader = group.members.by_id.get(group.members.leader_id or "")
    if leader is None or leader.joining is None:
        joined = next((member for member in group.members if member.joining is not None), None)
        if joined is None:
            return False
        group.members.leader_id = joined.member_id
    return True


# --- the assignment ----------------------------------------------------------------------------------------------


def sync(group: Group, event: Sync, now_ms: int) -> None:
    """A member brings or fetches the assignment. Raises KafkaError."""
    request = event.request
    group.check_alive()
    member = group.checked(request.member_id, request.group_instance_id, request.generation_id)
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.state is PREPARING:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    note_synced(group, member)
    if group.state is STABLE:
        group.touch(member, now_ms)
        group.answer(event, responses.synced(group, member))
        return
    assert group.state is COMPLETING, f"{group.describe()}: a member in a group without members"
    group.release(member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.syncing = event.ticket
    member.session_deadline_ms = None
    if member.member_id == group.members.leader_id:
        given = {row.member_id: bytes(row.assignment) for row in request.assignments}
        group.proposed = {member_id: given.get(member_id, b"") for member_id in group.members.by_id}
        group.persist(group.proposed)


def note_synced(group: Group, member: Member) -> None:
    """One member less to wait for."""
    group.unsynced.discard(member.member_id)
    if not group.unsynced:
        group.sync_deadline_ms = None


def persisted(group: Group, event: Persisted, now_ms: int) -> None:
    """The journal took the assignment, or refused it."""
    if group.state is not COMPLETING or event.generation != group.generation or not group.proposed:
        return  # the group has moved on; a newer record follows
    if event.error is not ErrorCode.NONE:
        answer_syncs(group, event.error, now_ms)
        start(group, now_ms)
        return
    for member in group.members:
        member.assignment = group.proposed.get(member.member_id, b"")
    group.proposed = {}
    group.move(STABLE, now_ms)
    answer_syncs(group, ErrorCode.NONE, now_ms)


def answer_syncs(group: Group, error: ErrorCode, now_ms: int) -> None:
    """Tell everybody who waits for the assignment what it is, or why there is none."""
    for member in group.members:
        if member.syncing is not None:
            ticket, member.syncing = member.syncing, None
            refused = error is not ErrorCode.NONE
            response = responses.sync_refusal(error) if refused else responses.synced(group, member)
            group.effects.append(Answer(ticket, response))
            group.touch(member, now_ms)
