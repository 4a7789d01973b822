"""One group as a machine: every state, every refusal, and the timeouts, without a clock or a socket."""

from __future__ import annotations

import itertools
import uuid

import pytest

from broker.coordinators.group_state import COMPLETING, DEAD, EMPTY, LEGAL, PREPARING, STABLE, GroupLimits, GroupState
from broker.coordinators.groups import Group
from protocol.errors import ErrorCode, KafkaError
from tests.broker.coordinators.driver import REBALANCE_MS, SESSION_MS, Driver, new_group

PAIRS = list(itertools.product(GroupState, GroupState))


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda state: state.value)
def test_only_the_legal_transitions_happen(before: GroupState, after: GroupState) -> None:
    group = new_group()
    group.state = before
    if after in LEGAL[before]:
        group.move(after, 5)
        assert (group.state, group.state_since_ms) == (after, 5)
    else:
        with pytest.raises(AssertionError, match="is not a transition"):
            group.move(after, 5)


def test_the_table_is_kafkas() -> None:
    """Predecessors as GroupMetadata.scala lists them."""
    predecessors = {after: {before for before in GroupState if after in LEGAL[before]} for after in GroupState}
    assert predecessors == {
        EMPTY: {PREPARING},
        PREPARING: {EMPTY, COMPLETING, STABLE},
        COMPLETING: {PREPARING},
        STABLE: {COMPLETING},
        DEAD: {EMPTY, PREPARING, COMPLETING, STABLE},
    }


# --- joining -----------------------------------------------------------------------------------------------------


def test_one_member_from_nothing_to_stable() -> None:
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


def test_ids_come_from_the_rng() -> None:
    assert Driver().draw_id() == Driver().draw_id()


def test_before_v4_no_id_is_required() -> None:
    drive = Driver()
    joined = drive.answers[drive.join(version=3)]
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert joined.member_id.startswith("client-")


def test_v0_takes_the_session_timeout_for_both() -> None:
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


def test_followers_are_parked_until_the_leader_brings_the_assignment() -> None:
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


def test_three_members_and_the_votes() -> None:
    """Each member votes for its first protocol that all support; sticky gets two votes of three."""
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
def test_refused_in_an_empty_group(arguments: dict[str, object], error: ErrorCode) -> None:
    drive = Driver()
    refused = drive.answers[drive.join(**arguments)]  # type: ignore[arg-type]
    assert (refused.error_code, refused.generation_id, refused.leader) == (error, -1, "")
    assert refused.protocol_name is None and drive.group.state is EMPTY


def test_a_refusal_before_v7_says_no_protocol_as_text() -> None:
    drive = Driver()
    assert drive.answers[drive.join("who", version=6)].protocol_name == ""


@pytest.mark.parametrize("arguments", [{"protocol_type": "connect"}, {"protocols": {"other": b""}}])
def test_refused_for_having_nothing_in_common(arguments: dict[str, object]) -> None:
    drive = Driver()
    drive.stable(1)
    refused = drive.answers[drive.join(**arguments)]  # type: ignore[arg-type]
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group() -> None:
    drive = Driver(new_group(size_max=1))
    (first,) = drive.stable(1)
    refused = drive.answers[drive.join(version=3)]
    assert (refused.error_code, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert drive.answers[drive.join(first)].error_code == 0, "members have their place"


def test_rejoining() -> None:
    """An unchanged follower is told the current generation; a changed one, or the leader, starts a rebalance."""
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


def test_leader_rejoins_alone() -> None:
    drive = Driver()
    leader, _ = drive.stable(2)
    drive.join(leader)
    assert drive.group.state is PREPARING


def test_a_second_join_of_the_same_member_answers_the_first() -> None:
    drive = Driver()
    leader, _ = drive.stable(2)
    first = drive.join(leader)
    second = drive.join(leader)
    assert drive.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS and second not in drive.answers


# --- the join phase ----------------------------------------------------------------------------------------------


def test_a_pending_id_holds_the_join_phase_until_it_lapses() -> None:
    drive = Driver()
    (first,) = drive.stable(1)
    drive.draw_id()
    drive.join(first)
    assert drive.group.state is PREPARING
    drive.advance(SESSION_MS)
    assert drive.group.state is COMPLETING and drive.group.generation == 2


def test_who_does_not_rejoin_in_time_is_out() -> None:
    """The silent one sends heartbeats (so its session lives) but never joins."""
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


def test_a_parked_member_needs_no_heartbeats() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    waiting = drive.join(follower, protocols={"range": b"new"})
    for _ in range(5):
        drive.heartbeat(leader)
        drive.advance(9000)
    assert waiting not in drive.answers and follower in drive.group.members.by_id


def test_a_heartbeat_does_not_start_the_clock_of_a_parked_member() -> None:
    """Some clients' heartbeat threads go on while their join waits."""
    drive = Driver()
    leader, follower = drive.stable(2)
    waiting = drive.join(follower, protocols={"range": b"new"})
    drive.heartbeat(follower)
    for _ in range(5):
        drive.heartbeat(leader)
        drive.advance(9000)
    assert waiting not in drive.answers and follower in drive.group.members.by_id


def test_the_initial_delay_gathers_members() -> None:
    """Each newcomer extends it by another delay, up to the rebalance timeout."""
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


def test_who_does_not_sync_in_time_is_out() -> None:
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


# --- syncing -----------------------------------------------------------------------------------------------------


def test_sync_refusals() -> None:
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


def test_an_assignment_that_cannot_be_stored_starts_over() -> None:
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


def test_a_store_that_is_overtaken_by_a_rebalance_changes_nothing() -> None:
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


def test_heartbeat_refusals() -> None:
    drive = Driver()
    (member,) = drive.stable(1)
    assert drive.heartbeat(member) is ErrorCode.NONE
    assert drive.heartbeat(member, 99) is ErrorCode.ILLEGAL_GENERATION
    assert drive.heartbeat("who") is ErrorCode.UNKNOWN_MEMBER_ID
    drive.join(member)
    assert drive.group.state is COMPLETING and drive.heartbeat(member) is ErrorCode.NONE
    drive.close()
    assert drive.heartbeat(member) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_silent_member_is_expired_and_the_others_rebalance() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    drive.advance(SESSION_MS - 1)
    drive.heartbeat(follower)
    drive.advance(1)
    assert list(drive.group.members.by_id) == [follower] and drive.group.state is PREPARING
    assert drive.answers[drive.join(follower)].leader == follower
    assert drive.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_one_to_go_leaves_an_empty_group_and_a_record_of_it() -> None:
    drive = Driver()
    (member,) = drive.stable(1)
    left = drive.leave((member, None))
    assert left.error_code == 0 and [one.error_code for one in left.members] == [0]
    assert (drive.group.state, drive.group.generation) == (EMPTY, 2)
    (write,) = drive.persists
    assert (write.value.members, write.value.protocol, write.value.generation) == ([], None, 2)
    assert drive.group.next_deadline() is None


def test_leaving_in_a_batch_and_alone() -> None:
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


def test_an_id_that_lapses_unused_disturbs_nobody() -> None:
    drive = Driver()
    (member,) = drive.stable(1)
    drive.draw_id(session_ms=6000)
    drive.advance(6000)
    assert not drive.group.members.pending and drive.group.state is STABLE
    assert drive.heartbeat(member) is ErrorCode.NONE


def test_the_last_missing_member_leaves_and_the_join_phase_ends() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    waiting = drive.join(leader)
    drive.leave((follower, None))
    assert drive.answers[waiting].generation_id == drive.group.generation


def test_a_pending_id_may_leave() -> None:
    drive = Driver()
    member = drive.draw_id()
    assert drive.leave((member, None)).members[0].error_code == 0
    assert drive.answers[drive.join(member)].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_closing_answers_everybody_who_waits() -> None:
    drive = Driver()
    leader, follower = drive.stable(2)
    joining = drive.join(follower, protocols={"range": b"new"})
    drive.close(ErrorCode.NOT_COORDINATOR)
    assert drive.answers[joining].error_code == ErrorCode.NOT_COORDINATOR
    assert drive.group.state is DEAD and drive.group.next_deadline() is None
    assert drive.answers[drive.join(leader)].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# --- static members ----------------------------------------------------------------------------------------------


def static_pair(drive: Driver) -> tuple[str, str]:
    """Two static members, `a` leading, Stable."""
    first = drive.answers[drive.join(instance_id="a")].member_id
    second = drive.join(instance_id="b")
    drive.join(first, instance_id="a")
    b_id = drive.answers[second].member_id
    drive.sync(first, {first: b"A", b_id: b"B"})
    drive.persisted()
    drive.sync(b_id)
    assert drive.group.state is STABLE
    return first, b_id


def test_a_static_member_needs_no_second_round() -> None:
    drive = Driver()
    joined = drive.answers[drive.join(instance_id="a")]
    assert joined.error_code == 0 and joined.member_id.startswith("a-")


def back_id(drive: Driver) -> str:
    """The second member in the record that waits to be stored."""
    return drive.persists[0].value.members[1].member_id


def test_a_static_member_restarts_unnoticed() -> None:
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


def test_a_static_leader_restarts() -> None:
    """v9 is told to skip the assignment (KIP-814); an older one is made to believe it follows."""
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


def test_a_static_member_that_wants_something_else_starts_a_rebalance() -> None:
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


def test_a_static_member_that_says_something_else_is_not_noticed_either() -> None:
    """Only the protocol counts, as in Kafka; what the member says is stored for the next round."""
    drive = Driver()
    static_pair(drive)
    generation = drive.group.generation
    back = drive.join(instance_id="b", protocols={"range": b"more"})
    assert drive.group.state is STABLE and drive.persists[0].value.members[1].subscription == b"more"
    drive.persisted()
    assert drive.answers[back].generation_id == generation


def test_a_static_member_whose_return_cannot_be_stored_has_not_returned() -> None:
    drive = Driver()
    _, b_id = static_pair(drive)
    back = drive.join(instance_id="b", protocols={"range": b"more"}, session_ms=7000)
    drive.persisted(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    refused = drive.answers[back]
    assert (refused.error_code, refused.member_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    member = drive.group.members.by_id[b_id]
    assert (member.session_timeout_ms, member.metadata("range")) == (SESSION_MS, b"m")
    assert drive.heartbeat(b_id, instance_id="b") is ErrorCode.NONE


def test_a_restored_group_that_is_too_large_starts_over() -> None:
    drive = Driver()
    ids = drive.stable(3)
    value = drive.group.snapshot(dict.fromkeys(ids, b""))
    small = Driver(Group.restore("g", value, GroupLimits(size_max=2), drive.group.rng, 0), now_ms=0)
    assert small.group.state is PREPARING
    tickets = {one: small.join(one) for one in ids}
    assert small.answers[tickets[ids[2]]].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {small.answers[tickets[one]].generation_id for one in ids[:2]} == {value.generation + 1}
    assert list(small.group.members.by_id) == ids[:2]


def test_silence_during_a_round_does_not_cost_a_static_member_its_new_session() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    waiting = drive.join(b_id, instance_id="b", protocols={"range": b"x"})
    for _ in range(REBALANCE_MS // 5000):
        drive.heartbeat(a_id, instance_id="a")
        drive.advance(5000)
    assert drive.answers[waiting].generation_id == 3 or drive.group.state is COMPLETING
    assert drive.group.members.by_id[a_id].session_deadline_ms == drive.now_ms + SESSION_MS


def test_a_replaced_static_member_is_fenced_where_it_waits() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    waiting = drive.join(b_id, instance_id="b", protocols={"range": b"x"})
    again = drive.join(instance_id="b", protocols={"range": b"x"})
    assert drive.answers[waiting].error_code == ErrorCode.FENCED_INSTANCE_ID
    drive.join(a_id, instance_id="a")
    assert drive.answers[again].error_code == 0


def test_static_ids_that_do_not_match() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    assert drive.answers[drive.join(a_id, instance_id="b")].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert drive.answers[drive.join(a_id, instance_id="new")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    rows = drive.leave(("", "a"), ("", "nobody"), (a_id, "b")).members
    assert [row.error_code for row in rows] == [0, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
    assert list(drive.group.members.by_id) == [b_id]


def test_a_silent_static_member_survives_the_join_phase() -> None:
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


def test_nobody_rejoins_and_only_static_members_are_left() -> None:
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


def test_a_static_member_survives_the_join_phase_but_not_its_session() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    waiting = drive.join(b_id, instance_id="b", protocols={"range": b"x"})
    drive.heartbeat(a_id, instance_id="a")
    drive.advance(SESSION_MS)
    assert drive.answers[waiting].error_code == 0 and list(drive.group.members.by_id) == [b_id]


# --- commits and watchers ----------------------------------------------------------------------------------------


def refused_commit(drive: Driver, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
    try:
        drive.group.authorize_commit(member_id, instance_id, generation, drive.now_ms)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_who_may_commit() -> None:
    drive = Driver()
    assert refused_commit(drive, "", -1) is ErrorCode.NONE
    assert refused_commit(drive, "who", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = drive.stable(2)
    generation = drive.group.generation
    assert refused_commit(drive, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert refused_commit(drive, leader, generation) is ErrorCode.NONE
    assert refused_commit(drive, leader, generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert refused_commit(drive, leader, generation, "x") is ErrorCode.UNKNOWN_MEMBER_ID
    drive.join(leader)
    assert drive.group.state is PREPARING
    assert refused_commit(drive, leader, generation) is ErrorCode.NONE, "the last chance before partitions move"
    drive.join(follower)
    assert drive.group.state is COMPLETING
    assert refused_commit(drive, leader, generation + 1) is ErrorCode.REBALANCE_IN_PROGRESS
    drive.close()
    assert refused_commit(drive, leader, generation + 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_commit_keeps_the_session_alive() -> None:
    drive = Driver()
    (member,) = drive.stable(1)
    for _ in range(4):
        drive.advance(SESSION_MS - 1)
        assert refused_commit(drive, member, drive.group.generation) is ErrorCode.NONE


def test_who_may_wait_for_progress() -> None:
    drive = Driver()
    drive.group.authorize_watch("", -1)
    (member,) = drive.stable(1)
    drive.group.authorize_watch(member, 1)
    for member_id, generation, error in [
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        (member, 0, ErrorCode.ILLEGAL_GENERATION),
    ]:
        with pytest.raises(KafkaError) as refused:
            drive.group.authorize_watch(member_id, generation)
        assert refused.value.code is error
    drive.join(member)
    with pytest.raises(KafkaError) as refused:
        drive.group.authorize_watch(member, 2)
    assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS


# --- failover ----------------------------------------------------------------------------------------------------


def test_a_restored_group_goes_on_where_it_was() -> None:
    drive = Driver()
    a_id, b_id = static_pair(drive)
    value = drive.group.snapshot({one.member_id: one.assignment for one in drive.group.members})
    after = Driver(Group.restore("g", value, GroupLimits(), drive.group.rng, drive.now_ms), now_ms=drive.now_ms)
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
    group = Group.restore("g", write.value, GroupLimits(), drive.group.rng, 0)
    assert (group.state, group.generation, group.protocol_type) == (EMPTY, 2, "consumer")
