"""The requests of a group's members that wait: parked until a phase ends, and each answered exactly once.

A parked Join waits for the end of the join phase, a parked Sync for the assignment. A member has at most one of the
two: whatever it asks next releases what it asked before.
"""

from __future__ import annotations

from anabranch.broker.coordinators.classic_groups import group_responses as responses
from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import Join, Ticket
from anabranch.broker.coordinators.classic_groups.members import Member
from anabranch.protocol.errors import ErrorCode


def hold_join(group: ClassicGroup, member: Member, event: Join, now_ms: int) -> None:
    """Let a member's join wait, with what the client says of itself now."""
    answer_all(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.adopt(event)
    member.hold_join(event, now_ms)


def hold_sync(group: ClassicGroup, member: Member, ticket: Ticket) -> None:
    """Let a member wait for its assignment."""
    answer_all(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.hold_sync(ticket)


def answer_all(group: ClassicGroup, member: Member, error: ErrorCode) -> None:
    """Refuse what the member waits for: it will not happen any more."""
    join = member.drop_join()
    if join is not None:
        group.answer(join.ticket, responses.join_refusal(join, error, member_id=join.request.member_id))
    sync = member.drop_sync()
    if sync is not None:
        group.answer(sync, responses.sync_refusal(error))


def drop(group: ClassicGroup, member: Member) -> None:
    """Let a member go; what it waits for is refused, and it has to begin anew."""
    join = member.drop_join()
    if join is not None:
        group.answer(join.ticket, responses.join_refusal(join, ErrorCode.UNKNOWN_MEMBER_ID, member_id=""))
    answer_all(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    group.members.remove(member)
    group.assignment_phase.asked(member.member_id)


def answer_joins(group: ClassicGroup, now_ms: int) -> None:
    """The join phase is over: answer every join that waits with the new generation, and begin all sessions anew."""
    for member in group.members:
        join = member.finish_join()
        if join is not None:
            group.answer(join.ticket, responses.joined(group, member))
        member.touch(now_ms)


def answer_syncs(group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
    """Answer every sync that waits, with the assignment or with the reason why there is none."""
    for member in group.members:
        sync = member.drop_sync()
        if sync is not None:
            refused = error is not ErrorCode.NONE
            group.answer(sync, responses.sync_refusal(error) if refused else responses.synced(group, member))
            member.touch(now_ms)
