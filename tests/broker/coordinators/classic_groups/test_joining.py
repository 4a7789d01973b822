"""Admission of members, the chosen protocol, and the end of the join phase."""

from __future__ import annotations

import uuid

import pytest

from anabranch.broker.coordinators.classic_groups.group_state import COMPLETING, EMPTY, PREPARING, STABLE
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.driver import REBALANCE_MS, SESSION_MS, Driver, new_group


def test_first_member_joins_and_syncs_to_a_stable_group() -> None:
    drive = Driver()
    member_id = drive.draw_id(client_id="me")
    name, _, drawn = member_id.partition("-")
    assert name == "me" and uuid.UUID(drawn).version == 4
    joined = drive.answers[drive.join(member_id)]
    assert (joined.error_code, joined.generation_id, joined.leader, joined.member_id) == (0, 1, member_id, member_id)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [(one.member_id, one.metadata) for one in joined.members] == [(member_id, b"m")]
    assert drive.group.state is COMPLETING

    sync = drive.sync(member_id, {member_id: b"all"})
    assert sync not in drive.answers, "an assignment counts only when it is stored"
    assert drive.group.state is COMPLETING
    (write,) = drive.persists
    assert write.value.generation == 1 and write.value.leader == member_id and write.value.protocol == "range"
    assert [(one.member_id, one.assignment, one.subscription) for one in write.value.members] == [
        (member_id, b"all", b"m")
    ]
    drive.persisted()
    assert drive.group.state is STABLE
    assert (drive.answers[sync].assignment, drive.answers[sync].protocol_name) == (b"all", "range")


def test_member_ids_are_drawn_from_the_rng() -> None:
    assert Driver().draw_id() == Driver().draw_id()


def test_join_before_v4_needs_no_member_id() -> None:
    drive = Driver()
    joined = drive.answers[drive.join(version=3)]
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.member_id.startswith("client-")


def test_join_v0_uses_the_session_timeout_as_rebalance_timeout() -> None:
    drive = Driver()
    drive.join(version=0, session_ms=7000)
    (member,) = drive.group.members
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (7000, 7000)


def test_a_second_member_waits_for_the_first_to_rejoin() -> None:
    drive = Driver()
    (first,) = drive.stable(1)
    second = drive.draw_id()
    assert drive.group.state is STABLE, "an id alone disturbs nobody"
    waiting = drive.join(second)
    assert drive.group.state is PREPARING and waiting not in drive.answers and drive.disturbed == 2
    assert drive.heartbeat(first) is ErrorCode.REBALANCE_IN_PROGRESS
    again = drive.join(first)
    assert drive.answers[waiting].generation_id == drive.answers[again].generation_id == 2
    assert drive.answers[waiting].leader == first
    assert [one.member_id for one in drive.answers[again].members] == [first, second]
    assert drive.answers[waiting].members == []


def test_syncs_of_followers_wait_for_the_leaders_assignment() -> None:
    drive = Driver()
    ids = [drive.draw_id()]
    drive.join(ids[0])
    ids.append(drive.draw_id())
    drive.join(ids[1])
    drive.join(ids[0])
    follower = drive.sync(ids[1])
    assert follower not in drive.answers
    leader = drive.sync(ids[0], {ids[0]: b"0"})
    drive.persisted()
    assert drive.answers[leader].assignment == b"0"
    assert drive.answers[follower].assignment == b"", "the leader forgot it: nothing, not an error"
    late = drive.sync(ids[0])
    assert drive.answers[late].assignment == b"0", "Stable answers at once"


def test_members_vote_for_the_protocol() -> None:
    """Each member votes for its first common protocol; sticky gets two of three votes."""
    drive = Driver()
    wishes = [
        {"range": b"r0", "sticky": b"s0"},
        {"sticky": b"s1", "range": b"r1"},
        {"private": b"p", "sticky": b"s2", "range": b"r2"},
    ]
    ids: list[str] = []
    for wish in wishes:
        ids.append(drive.draw_id(protocols=wish))
        rounds = reversed(list(zip(ids, wishes, strict=False)))
        tickets = [drive.join(one, protocols=mine) for one, mine in rounds]
    leader = drive.answers[tickets[-1]]
    assert leader.protocol_name == "sticky"
    assert [one.metadata for one in leader.members] == [b"s0", b"s1", b"s2"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"session_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1800001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "who"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_invalid_join_of_an_empty_group_is_refused(arguments: dict[str, object], error: ErrorCode) -> None:
    drive = Driver()
    refused = drive.answers[drive.join(**arguments)]  # type: ignore[arg-type]
    assert (refused.error_code, refused.generation_id, refused.leader) == (error, -1, "")
    assert refused.protocol_name is None and drive.group.state is EMPTY


def test_refused_join_before_v7_has_an_empty_protocol_name() -> None:
    drive = Driver()
    assert drive.answers[drive.join("who", version=6)].protocol_name == ""


@pytest.mark.parametrize("arguments", [{"protocol_type": "connect"}, {"protocols": {"other": b""}}])
def test_join_without_common_protocol_is_refused(arguments: dict[str, object]) -> None:
    drive = Driver()
    drive.stable(1)
    refused = drive.answers[drive.join(**arguments)]  # type: ignore[arg-type]
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_join_of_a_full_group_is_refused() -> None:
    drive = Driver(new_group(size_max=1))
    (first,) = drive.stable(1)
    refused = drive.answers[drive.join(version=3)]
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert drive.answers[drive.join(first)].error_code == 0, "members have their place"


def test_rejoin_of_changed_member_or_leader_starts_a_rebalance() -> None:
    """An unchanged follower gets the current generation; a changed one, or the leader, starts a rebalance."""
    drive = Driver()
    leader, follower = drive.stable(2)
    generation = drive.group.generation
    same = drive.answers[drive.join(follower)]
    assert (same.generation_id, same.members, drive.group.state) == (generation, [], STABLE)
    drive.join(follower, protocols={"range": b"changed"})
    assert drive.group.state is PREPARING
    drive.join(leader)
    assert drive.group.generation == generation + 1
    lost = drive.answers[drive.join(leader)]
    assert (lost.generation_id, len(lost.members)) == (generation + 1, 2), "the lost answer is given again"


def test_rejoining_leader_starts_a_rebalance() -> None:
    drive = Driver()
    leader, _ = drive.stable(2)
    drive.join(leader)
    assert drive.group.state is PREPARING


# --- the join phase ----------------------------------------------------------------------------------------------


def test_pending_member_delays_the_join_phase_until_it_expires() -> None:
    drive = Driver()
    (first,) = drive.stable(1)
    drive.draw_id()
    drive.join(first)
    assert drive.group.state is PREPARING
    drive.advance(SESSION_MS)
    assert drive.group.state is COMPLETING and drive.group.generation == 2


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    """The member sends heartbeats (so its session lives), but never joins."""
    drive = Driver()
    leader, follower = drive.stable(2)
    waiting = drive.join(follower, protocols={"range": b"new"})
    for _ in range(REBALANCE_MS // 5000):
        assert waiting not in drive.answers
        assert drive.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
        drive.advance(5000)
    assert drive.answers[waiting].leader == follower, "it leads now"
    assert list(drive.group.members.by_id) == [follower]
    assert drive.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_does_not_start_the_session_of_a_member_with_pending_join() -> None:
    """Some clients send heartbeats while their join waits."""
    drive = Driver()
    leader, follower = drive.stable(2)
    waiting = drive.join(follower, protocols={"range": b"new"})
    drive.heartbeat(follower)
    for _ in range(5):
        drive.heartbeat(leader)
        drive.advance(9000)
    assert waiting not in drive.answers and follower in drive.group.members.by_id


def test_initial_rebalance_delay_gathers_members() -> None:
    """Each new member extends it by another delay, up to the rebalance timeout."""
    drive = Driver(new_group(initial_rebalance_delay_ms=3000))
    first = drive.join(version=3)
    drive.advance(2000)
    second = drive.join(version=3)
    drive.advance(1000)
    assert first not in drive.answers, "extended"
    drive.advance(2999)
    assert first not in drive.answers
    drive.advance(1)
    assert drive.answers[first].generation_id == drive.answers[second].generation_id == 1


def test_member_that_does_not_sync_in_time_is_removed() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    drive.join(follower, protocols={"range": b"new"})
    drive.join(leader)
    parked = drive.sync(leader, {})
    drive.persisted()
    assert drive.answers[parked].error_code == 0 and drive.group.state is STABLE
    for _ in range(REBALANCE_MS // 5000):
        drive.heartbeat(follower)
        drive.heartbeat(leader)
        drive.advance(5000)
    assert list(drive.group.members.by_id) == [leader] and drive.group.state is PREPARING
