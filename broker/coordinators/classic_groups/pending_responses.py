"""The waiting requests of a group's members: held until a phase ends, and answered exactly once.

A Join waits for the end of the join phase, a Sync for the assignment. A member has at most one waiting request: its
next request ends the previous one.
"""

from __future__ import annotations

from anabranch.broker.coordinators.classic_groups import group_responses as responses
from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.classic_groups.group_events import Join, Ticket
from anabranch.broker.coordinators.classic_groups.members import Member
from anabranch.protocol.errors import ErrorCode


def hold_join(group: ClassicGroup, member: Member, event: Join, now_ms: int) -> None:
    """Let a member's join wait, and copy the client's data from it."""
    answer_all(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.adopt(event)
    member.hold_join(event, now_ms)


def hold_sync(group: ClassicGroup, member: Member, ticket: Ticket) -> None:
    """Let a member's sync wait for the assignment."""
    answer_all(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.hold_sync(ticket)


def answer_all(group: ClassicGroup, member: Member, error: ErrorCode) -> None:
    """Reject the member's waiting requests."""
    join = member.drop_join()
    if join is not None:
        group.answer(join.ticket, responses.join_refusal(join, error, member_id=join.request.member_id))
    sync = member.drop_sync()
    if sync is not None:
        group.answer(sync, responses.sync_refusal(error))


def drop(group: ClassicGroup, member: Member) -> None:
    """Remove a member and reject its waiting requests."""
    join = member.drop_join()
    if join is not None:
        group.answer(join.ticket, responses.join_refusal(join, ErrorCode.UNKNOWN_MEMBER_ID, member_id=""))
    answer_all(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    group.members.remove(member)
    group.assignment_phase.remove_pending_sync(member.member_id)


def answer_joins(group: ClassicGroup, now_ms: int) -> None:
    """Answer all waiting joins with the new generation, and restart all sessions."""
    for member in group.members:
        join = member.finish_join()
        if join is not None:
            group.answer(join.ticket, responses.join_response(group, member))
        member.touch(now_ms)


def answer_syncs(group: ClassicGroup, error: ErrorCode, now_ms: int) -> None:
    """Answer all waiting syncs with the assignment or an error."""
    for member in group.members:
        sync = member.drop_sync()
        if sync is not None:
            refused = error is not ErrorCode.NONE
            group.answer(sync, responses.sync_refusal(error) if refused else responses.sync_response(group, member))
            member.touch(now_ms)
