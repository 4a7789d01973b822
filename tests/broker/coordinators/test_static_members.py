"""Static members (KIP-345) restart without a rebalance; an instance id has one member."""

from __future__ import annotations

from anabranch.broker.coordinators.classic_groups.group_machine import restore
from anabranch.broker.coordinators.classic_groups.group_state import COMPLETING, PREPARING, STABLE, GroupLimits
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.driver import REBALANCE_MS, SESSION_MS, Driver, static_pair


def test_first_join_of_a_static_member_needs_no_member_id() -> None:
    drive = Driver()
    joined = drive.answers[drive.join(instance_id="a")]
    assert joined.error_code == 0 and joined.member_id.startswith("a-")


def back_id(drive: Driver) -> str:
    """The second member in the record that waits to be stored."""
    return drive.persists[0].value.members[1].member_id


def test_restart_of_a_static_member_causes_no_rebalance() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    generation, disturbed = drive.group.generation, drive.disturbed
    back = drive.join(instance_id="b")
    assert back not in drive.answers, "the new id has to survive a failover first"
    assert back_id(drive) not in (a_id, b_id)
    drive.persisted()
    new_id = drive.answers[back].member_id
    assert new_id not in (a_id, b_id) and drive.answers[back].generation_id == generation
    assert (drive.group.state, drive.disturbed) == (STABLE, disturbed)
    assert drive.answers[drive.sync(new_id, group_instance_id="b")].assignment == b"B"
    assert drive.heartbeat(b_id, instance_id="b") is ErrorCode.FENCED_INSTANCE_ID
    assert drive.heartbeat(b_id) is ErrorCode.UNKNOWN_MEMBER_ID
    assert drive.heartbeat(new_id, instance_id="b") is ErrorCode.NONE


def test_restarted_static_leader_skips_the_assignment() -> None:
    """v9 skips the assignment (KIP-814); older clients get a follower's response."""
    drive = Driver()
    a_id, _ = static_pair(drive)
    back = drive.join(instance_id="a", version=9)
    drive.persisted()
    assert drive.answers[back].skip_assignment and len(drive.answers[back].members) == 2
    assert drive.answers[back].leader == drive.answers[back].member_id != a_id
    older = drive.join(instance_id="a", version=8)
    drive.persisted()
    response = drive.answers[older]
    assert not response.skip_assignment and response.members == [] and response.leader == drive.answers[back].member_id


def test_static_member_returning_with_another_protocol_starts_a_rebalance() -> None:
    drive = Driver()
    a_id, _ = static_pair(drive)
    drive.leave((a_id, "a"))
    again = drive.join(static_b(drive), instance_id="b", protocols={"range": b"m", "sticky": b"m"})
    drive.sync(drive.answers[again].member_id, {})
    drive.persisted()
    back = drive.join(instance_id="b", protocols={"sticky": b"m"})
    assert drive.answers[back].generation_id == drive.group.generation and drive.group.state is COMPLETING
    assert drive.group.protocol == "sticky"


def static_b(drive: Driver) -> str:
    return drive.group.members.static["b"]


def test_static_member_returning_with_another_subscription_starts_no_rebalance() -> None:
    """As in Kafka, only the protocol counts; the subscription is stored for the next rebalance."""
    drive = Driver()
    static_pair(drive)
    generation = drive.group.generation
    back = drive.join(instance_id="b", protocols={"range": b"more"})
    assert drive.group.state is STABLE and drive.persists[0].value.members[1].subscription == b"more"
    drive.persisted()
    assert drive.answers[back].generation_id == generation


def test_return_of_a_static_member_that_cannot_be_stored_is_refused() -> None:
    drive = Driver()
    _, b_id = static_pair(drive)
    back = drive.join(instance_id="b", protocols={"range": b"more"}, session_ms=7000, holds_gates=True)
    drive.persisted(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    refused = drive.answers[back]
    assert (refused.error_code, refused.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    member = drive.group.members.by_id[b_id]
    assert (member.session_timeout_ms, member.metadata("range")) == (SESSION_MS, b"m")
    assert not member.holds_gates, "the broker holds them for the former client"
    assert drive.heartbeat(b_id, instance_id="b") is ErrorCode.NONE


def test_restored_group_over_its_max_size_starts_a_rebalance() -> None:
    drive = Driver()
    ids = drive.stable(3)
    value = drive.group.snapshot(dict.fromkeys(ids, b""))
    small = Driver(restore("g", value, GroupLimits(size_max=2), drive.group.rng, 0), now_ms=0)
    assert small.group.state is PREPARING
    tickets = {one: small.join(one) for one in ids}
    assert small.answers[tickets[ids[2]]].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {small.answers[tickets[one]].generation_id for one in ids[:2]} == {value.generation + 1}
    assert list(small.group.members.by_id) == ids[:2]


def test_static_member_has_a_new_session_after_a_missed_rebalance() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    waiting = drive.join(b_id, instance_id="b", protocols={"range": b"x"})
    for _ in range(REBALANCE_MS // 5000):
        drive.heartbeat(a_id, instance_id="a")
        drive.advance(5000)
    assert drive.answers[waiting].generation_id == 3 or drive.group.state is COMPLETING
    assert drive.group.members.by_id[a_id].session_deadline_ms == drive.now_ms + SESSION_MS


def test_pending_join_of_a_replaced_static_member_is_fenced() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    waiting = drive.join(b_id, instance_id="b", protocols={"range": b"x"})
    again = drive.join(instance_id="b", protocols={"range": b"x"})
    assert drive.answers[waiting].error_code == ErrorCode.FENCED_INSTANCE_ID
    drive.join(a_id, instance_id="a")
    assert drive.answers[again].error_code == 0


def test_mismatched_instance_ids_are_refused() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    assert drive.answers[drive.join(a_id, instance_id="b")].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert drive.answers[drive.join(a_id, instance_id="new")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    rows = drive.leave(("", "a"), ("", "nobody"), (a_id, "b")).members
    assert [row.error_code for row in rows] == [0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
    assert list(drive.group.members.by_id) == [b_id]


def test_static_member_without_join_survives_the_join_phase() -> None:
    """It may be restarting; only its session decides (here it still sends heartbeats)."""
    drive = Driver()
    a_id, b_id = static_pair(drive)
    waiting = drive.join(b_id, instance_id="b", protocols={"range": b"x"})
    for _ in range(REBALANCE_MS // 5000):
        assert waiting not in drive.answers
        drive.heartbeat(a_id, instance_id="a")
        drive.advance(5000)
    assert drive.answers[waiting].leader == b_id
    assert {one.member_id for one in drive.answers[waiting].members} == {a_id, b_id}


def test_join_phase_without_joins_keeps_static_members() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    stranger = drive.draw_id()
    drive.join(stranger)
    generation = drive.group.generation
    drive.leave((stranger, None))
    for _ in range(2 * REBALANCE_MS // 5000):
        assert drive.heartbeat(a_id) is drive.heartbeat(b_id) is ErrorCode.REBALANCE_IN_PROGRESS
        drive.advance(5000)
    assert (drive.group.state, drive.group.generation) == (PREPARING, generation), "the phase starts over"


def test_static_member_is_removed_at_session_expiry_in_the_join_phase() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    waiting = drive.join(b_id, instance_id="b", protocols={"range": b"x"})
    drive.heartbeat(a_id, instance_id="a")
    drive.advance(SESSION_MS)
    assert drive.answers[waiting].error_code == 0 and list(drive.group.members.by_id) == [b_id]
