"""A group as a state machine: states, refusals and timeouts, without clock or socket."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path
from typing import Final

import pytest

from anabranch.broker.coordinators.classic_groups import (
    group_machine,
    group_responses,
    joining,
    pending_responses,
    rebalance,
)
from anabranch.broker.coordinators.classic_groups.group_machine import restore
from anabranch.broker.coordinators.classic_groups.group_state import (
    COMPLETING,
    DEAD,
    EMPTY,
    LEGAL,
    PREPARING,
    STABLE,
    GroupLimits,
    GroupState,
)
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.driver import SESSION_MS, Driver, new_group, static_pair

PAIRS = list(itertools.product(GroupState, GroupState))


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda state: state.value)
def test_illegal_state_transition_is_refused(before: GroupState, after: GroupState) -> None:
    group = new_group()
    group.state = before
    group.note_date(5)
    if after in LEGAL[before]:
        group.move(after)
        assert (group.state, group.state_since_ms) == (after, 5)
    else:
        with pytest.raises(AssertionError, match="is not a transition"):
            group.move(after)


def test_legal_transitions_equal_kafkas() -> None:
    """Valid previous states from GroupMetadata.scala."""
    predecessors = {after: {before for before in GroupState if after in LEGAL[before]} for after in GroupState}
    assert predecessors == {
        EMPTY: {PREPARING},
        PREPARING: {EMPTY, COMPLETING, STABLE},
        COMPLETING: {PREPARING},
        STABLE: {COMPLETING},
        DEAD: {EMPTY, PREPARING, COMPLETING, STABLE},
    }


# --- syncing -----------------------------------------------------------------------------------------------------


def test_invalid_sync_is_refused() -> None:
    drive = Driver()
    leader, _ = drive.stable(2)
    cases = {
        ErrorCode.UNKNOWN_MEMBER_ID: drive.sync("who"),
        ErrorCode.ILLEGAL_GENERATION: drive.sync(leader, generation=99),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: drive.sync(leader, protocol_name="other"),
    }
    assert {error: drive.answers[ticket].error_code for error, ticket in cases.items()} == {one: one for one in cases}
    drive.join(leader)
    assert drive.answers[drive.sync(leader)].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_assignment_that_cannot_be_stored_starts_a_rebalance() -> None:
    drive = Driver()
    member = drive.draw_id()
    drive.join(member)
    sync = drive.sync(member, {member: b"x"})
    drive.persisted(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert drive.answers[sync].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert drive.group.state is PREPARING
    assert drive.answers[drive.join(member)].generation_id == 2
    drive.sync(member, {member: b"x"})
    drive.persisted()
    assert drive.group.state is STABLE


def test_members_get_the_assignment_that_is_stored_although_the_leader_brings_another_one_meanwhile() -> None:
    """Its first response was lost: it joins again, and its assignor may decide otherwise by then."""
    drive = Driver()
    leader = drive.draw_id()
    drive.join(leader)
    lost = drive.sync(leader, {leader: b"first"})
    drive.join(leader)
    again = drive.sync(leader, {leader: b"second"})
    assert drive.answers[lost].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    drive.persisted()
    assert not drive.persists
    assert (drive.group.state, drive.answers[again].assignment) == (STABLE, b"first")


def test_assignment_stored_after_a_new_rebalance_is_ignored() -> None:
    drive = Driver()
    leader = drive.draw_id()
    drive.join(leader)
    sync = drive.sync(leader, {leader: b"old"})
    other = drive.draw_id()
    drive.join(other)
    assert drive.answers[sync].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    drive.persisted()
    assert drive.group.state is PREPARING
    drive.join(leader)
    assert drive.group.generation == 2 and drive.group.state is COMPLETING


# --- staying and leaving -----------------------------------------------------------------------------------------


def test_invalid_heartbeat_is_refused() -> None:
    drive = Driver()
    (member,) = drive.stable(1)
    assert drive.heartbeat(member) is ErrorCode.NONE
    assert drive.heartbeat(member, 99) is ErrorCode.ILLEGAL_GENERATION
    assert drive.heartbeat("who") is ErrorCode.UNKNOWN_MEMBER_ID
    drive.join(member)
    assert drive.group.state is COMPLETING and drive.heartbeat(member) is ErrorCode.NONE
    drive.close()
    assert drive.heartbeat(member) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_expired_session_removes_member_and_starts_a_rebalance() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    drive.advance(SESSION_MS - 1)
    drive.heartbeat(follower)
    drive.advance(1)
    assert list(drive.group.members.by_id) == [follower] and drive.group.state is PREPARING
    assert drive.answers[drive.join(follower)].leader == follower
    assert drive.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


def test_last_leaving_member_writes_an_empty_group() -> None:
    drive = Driver()
    (member,) = drive.stable(1)
    left = drive.leave((member, None))
    assert left.error_code == 0 and [one.error_code for one in left.members] == [0]
    assert (drive.group.state, drive.group.generation) == (EMPTY, 2)
    (write,) = drive.persists
    assert (write.value.members, write.value.protocol, write.value.generation) == ([], None, 2)
    assert drive.group.next_deadline() is None


def test_members_leave_in_batches_or_alone() -> None:
    drive = Driver()
    ids = drive.stable(3)
    left = drive.leave((ids[1], None), ("who", None), (ids[2], None))
    assert left.error_code == 0
    assert [one.error_code for one in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert list(drive.group.members.by_id) == [ids[0]] and drive.group.state is PREPARING
    alone = Driver()
    alone.stable(1)
    assert alone.leave(("who", None), version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert alone.group.state is STABLE


def test_expired_pending_member_causes_no_rebalance() -> None:
    drive = Driver()
    (member,) = drive.stable(1)
    drive.draw_id(session_ms=6000)
    drive.advance(6000)
    assert not drive.group.members.pending and drive.group.state is STABLE
    assert drive.heartbeat(member) is ErrorCode.NONE


def test_leave_of_the_last_missing_member_completes_the_join_phase() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    waiting = drive.join(leader)
    drive.leave((follower, None))
    assert drive.answers[waiting].generation_id == drive.group.generation


def test_pending_member_may_leave() -> None:
    drive = Driver()
    member = drive.draw_id()
    assert drive.leave((member, None)).members[0].error_code == 0
    assert drive.answers[drive.join(member)].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_closing_a_group_completes_pending_responses() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    joining = drive.join(follower, protocols={"range": b"new"})
    drive.close(ErrorCode.NOT_COORDINATOR)
    assert drive.answers[joining].error_code == ErrorCode.NOT_COORDINATOR
    assert drive.group.state is DEAD and drive.group.next_deadline() is None
    assert drive.answers[drive.join(leader)].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- commits and watchers ----------------------------------------------------------------------------------------


def test_commit_is_refused_unless_member_generation_and_instance_match() -> None:
    drive = Driver()
    assert drive.commit("", -1) is ErrorCode.NONE
    assert drive.commit("who", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = drive.stable(2)
    generation = drive.group.generation
    assert drive.commit("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert drive.commit(leader, generation) is ErrorCode.NONE
    assert drive.commit(leader, generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert drive.commit(leader, generation, "x") is ErrorCode.UNKNOWN_MEMBER_ID
    drive.join(leader)
    assert drive.group.state is PREPARING
    assert drive.commit(leader, generation) is ErrorCode.NONE, "the last chance before partitions move"
    drive.join(follower)
    assert drive.group.state is COMPLETING
    assert drive.commit(leader, generation + 1) is ErrorCode.REBALANCE_IN_PROGRESS
    drive.close()
    assert drive.commit(leader, generation + 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_commit_keeps_the_session_alive() -> None:
    drive = Driver()
    (member,) = drive.stable(1)
    for _ in range(4):
        drive.advance(SESSION_MS - 1)
        assert drive.commit(member, drive.group.generation) is ErrorCode.NONE


def test_observe_is_refused_unless_member_and_generation_match() -> None:
    drive = Driver()
    assert drive.observe("", -1) is ErrorCode.NONE
    (member,) = drive.stable(1)
    assert drive.observe(member, 1) is ErrorCode.NONE
    assert drive.observe("", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert drive.observe(member, 0) is ErrorCode.ILLEGAL_GENERATION
    drive.join(member)
    assert drive.observe(member, 2) is ErrorCode.REBALANCE_IN_PROGRESS


# --- failover ----------------------------------------------------------------------------------------------------


def test_restored_group_keeps_members_generation_and_assignment() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    value = drive.group.snapshot({one.member_id: one.assignment for one in drive.group.members})
    after = Driver(restore("g", value, GroupLimits(size_max=2), drive.group.rng, drive.now_ms), now_ms=drive.now_ms)
    assert after.group.state is STABLE and after.group.generation == drive.group.generation
    assert after.heartbeat(a_id, instance_id="a") is after.heartbeat(b_id) is ErrorCode.NONE
    assert after.answers[after.sync(b_id)].assignment == b"B"
    assert after.group.members.leader_id == a_id
    after.advance(SESSION_MS)
    assert len(after.group.members) == 0, "sessions start anew, and end"


def test_a_group_restored_without_members_is_empty() -> None:
    drive = Driver()
    (member,) = drive.stable(1)
    drive.leave((member, None))
    (write,) = drive.persists
    group = restore("g", write.value, GroupLimits(), drive.group.rng, 0)
    assert (group.state, group.generation, group.protocol_type) == (EMPTY, 2, "consumer")


# --- one door ----------------------------------------------------------------------------------------------------

DECIDE: Final = (group_machine, joining, rebalance, pending_responses, group_responses)
"""The modules that decide about a group; what it knows is in `classic_group`, `members` and `group_phases`."""


def changed_attributes(source: str) -> set[str]:
    """Every attribute, or item of one, that is assigned to or deleted."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        context = getattr(node, "ctx", None)
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(context, ast.Store | ast.Del):
            found.add(ast.unparse(node))
    return found


def test_only_methods_of_the_group_change_its_attributes() -> None:
    changes = {one.__name__: changed_attributes(Path(one.__file__ or "").read_text()) for one in DECIDE}
    assert changes == {one.__name__: set() for one in DECIDE}
    assert changed_attributes("group.state = 5; del member.waits[3]; a, group.x = b") == {
        "group.state",
        "member.waits[3]",
        "group.x",
    }
