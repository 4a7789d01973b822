"""The coordinator on real brokers: stored state survives, waiters wake up, wrong brokers answer NOT_COORDINATOR."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.coordinators.classic_groups.group_state import STABLE
from anabranch.clients.connection import Connection
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from tests.broker.coordinators.world import (
    TOPIC,
    GroupWorld,
    commit_errors,
    commit_request,
    fetch_offsets_request,
    group_world,
    heartbeat_request,
    join_alone,
    join_request,
    offsets_in,
    positions_in,
    sync_request,
    watch_request,
)
from tests.broker.replication.replica_cluster import until


async def connect(world: GroupWorld, broker_id: int = 1) -> Connection:
    return await world[broker_id].connect()


# --- every version on the wire -----------------------------------------------------------------------------------


async def test_offset_requests_work_in_every_version() -> None:
    async with group_world() as world:
        connection = await connect(world)
        for version in range(1, 10):
            committed = await connection.call(commit_request({0: version, 1: 100 + version}), version=version)
            assert commit_errors(committed) == [0, 0]
            for fetch in range(1, 10):
                response = await connection.call(fetch_offsets_request(fetch, [0, 1, 2, 0]), version=fetch)
                topics = response.groups[0].topics if fetch >= 8 else response.topics
                assert len(topics[0].partitions) == 3, "once each"
                assert offsets_in(response, fetch) == {0: version, 1: 100 + version, 2: -1}
                if fetch >= 2:
                    response = await connection.call(fetch_offsets_request(fetch, None), version=fetch)
                    assert offsets_in(response, fetch) == {0: version, 1: 100 + version}
        row = (await connection.call(fetch_offsets_request(9, [0]))).groups[0].topics[0].partitions[0]
        assert (row.metadata, row.committed_leader_epoch, row.error_code) == ("m", 3, 0)
        unknown = await connection.call(fetch_offsets_request(7, [0], "nobody"), version=7)
        assert (unknown.error_code, offsets_in(unknown, 7)) == (0, {0: -1})
        await connection.close()


async def test_administration_requests_work_in_every_version() -> None:
    async with group_world() as world:
        connection = await connect(world)
        member_id, _ = await join_alone(connection)
        for version in range(6):
            described = await connection.call(DescribeGroupsRequest(groups=["g", "nobody"]), version=version)
            mine, nobody = described.groups
            assert (mine.group_state, mine.protocol_type, mine.protocol_data) == ("Stable", "consumer", "range")
            (member,) = mine.members
            assert (member.member_id, member.client_id, member.client_host) == (member_id, "test", "/127.0.0.1")
            assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (b"topics", b"mine")
            assert (nobody.group_state, nobody.error_code, nobody.members) == ("Dead", 0, [])
            listed = await connection.call(ListGroupsRequest(), version=version)
            assert [(row.group_id, row.protocol_type) for row in listed.groups] == [("g", "consumer")]
            describe_request = DescribeGroupsRequest(groups=["g", "nobody"], include_authorized_operations=version >= 3)
            allowed = [
                group.authorized_operations
                for group in (await connection.call(describe_request, version=version)).groups
            ]
            assert allowed == [1 << 3 | 1 << 6 | 1 << 8 if version >= 3 else -(2**31)] * 2
            left = await connection.call(
                LeaveGroupRequest(group_id="nobody", member_id="x", members=[MemberIdentity(member_id="x")]),
                version=version,
            )
            assert left.error_code == (0 if version >= 3 else ErrorCode.UNKNOWN_MEMBER_ID)
            assert [row.error_code for row in left.members] == [ErrorCode.UNKNOWN_MEMBER_ID] * (version >= 3)
        for request, count in [
            (ListGroupsRequest(states_filter=["Stable"]), 1),
            (ListGroupsRequest(states_filter=["Empty"]), 0),
            (ListGroupsRequest(types_filter=["classic"]), 1),
            (ListGroupsRequest(types_filter=["consumer"]), 0),
        ]:
            assert len((await connection.call(request)).groups) == count
        await connection.close()


# --- commits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kafka_version", "shown"), [("3.9", b""), ("4.0", b"mine")])
async def test_assignments_of_the_last_generation_are_described_in_a_rebalance_of_kafka_4(
    kafka_version: str, shown: bytes
) -> None:
    async with group_world(kafka_version=kafka_version) as world:
        connection = await connect(world)
        member_id, _ = await join_alone(connection)
        assert (await connection.call(join_request(member_id), version=3)).error_code == 0
        (described,) = (await connection.call(DescribeGroupsRequest(groups=["g"]), version=5)).groups
        assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")
        assert bytes(described.members[0].member_assignment) == shown
        await connection.close()


async def test_partitions_of_a_commit_are_refused_individually() -> None:
    async with group_world() as world:
        connection = await connect(world)
        assert commit_errors(await connection.call(commit_request({0: 1, 99: 1}))) == [
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
        ]
        long = await connection.call(commit_request({1: 1}, metadata="ü" * 4097))
        assert commit_errors(long) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        wide = await connection.call(commit_request({1: 1}, metadata="\N{GRINNING FACE}" * 2049))
        assert commit_errors(wide) == [ErrorCode.OFFSET_METADATA_TOO_LARGE], "Java counts it as two"
        stranger = await connection.call(commit_request({1: 1, 99: 1}, metadata="ü" * 4097, member=("who", 1)))
        assert commit_errors(stranger) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_MEMBER_ID]
        assert commit_errors(await connection.call(commit_request({2: 1}, metadata="ü" * 4096))) == [ErrorCode.NONE]
        assert world.groups(1).offsets.of("g").committed.keys() == {(TOPIC, 0), (TOPIC, 2)}
        await connection.close()


async def test_commit_needs_member_and_generation() -> None:
    async with group_world() as world:
        connection = await connect(world)
        early = await connection.call(commit_request({0: 1}, member=("who", 5)))
        assert commit_errors(early) == [ErrorCode.ILLEGAL_GENERATION]
        member_id, generation = await join_alone(connection)
        for member, error in [
            ((member_id, generation), ErrorCode.NONE),
            ((member_id, generation - 1), ErrorCode.ILLEGAL_GENERATION),
            (("who", generation), ErrorCode.UNKNOWN_MEMBER_ID),
            (("", -1), ErrorCode.UNKNOWN_MEMBER_ID),
        ]:
            assert commit_errors(await connection.call(commit_request({0: 5}, member=member))) == [error]
        await connection.close()


async def test_commit_too_large_for_the_journal_is_refused() -> None:
    async with group_world(message_max_bytes=2000) as world:
        connection = await connect(world)
        response = await connection.call(commit_request(dict.fromkeys(range(4), 1), metadata="x" * 1000))
        assert set(commit_errors(response)) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
        assert not world.groups(1).offsets.of("g")
        await connection.close()


async def test_commit_is_acknowledged_and_visible_only_when_replicated() -> None:
    """Broker 2 is in the ISR but dead: the leader has the record, but it is not committed."""
    async with group_world(brokers=2, offsets_commit_timeout_ms=200) as world:
        connection = await connect(world)
        assert commit_errors(await connection.call(commit_request({0: 1}))) == [ErrorCode.NONE]
        await world.kill(2)
        leader = world.partition(1, CONSUMER_OFFSETS_TOPIC)
        before = leader.log.log_end_offset
        commit = asyncio.ensure_future(connection.call(commit_request({0: 2})))
        await until(lambda: leader.log.log_end_offset == before + 1)
        assert not commit.done()
        assert world.groups(1).offsets.of("g").offset_of((TOPIC, 0)) == 1
        assert commit_errors(await commit) == [ErrorCode.REQUEST_TIMED_OUT]
        assert world.groups(1).offsets.of("g").offset_of((TOPIC, 0)) == 1
        await connection.close()


# --- failover ----------------------------------------------------------------------------------------------------


async def test_members_and_offsets_survive_their_coordinator() -> None:
    async with group_world(brokers=2) as world:
        first = await connect(world)
        member = await join_alone(first)
        assert commit_errors(await first.call(commit_request({0: 7, 1: 8}, member=member))) == [0, 0]
        await world.kill(1)
        await world.coordinate(2)
        second = await connect(world, 2)
        assert (await second.call(heartbeat_request(*member))).error_code == 0
        assert offsets_in(await second.call(fetch_offsets_request(9, None)), 9) == {0: 7, 1: 8}
        assert bytes((await second.call(sync_request(*member))).assignment) == b"mine"
        assert commit_errors(await second.call(commit_request({0: 9}, member=member))) == [0]
        group = world.groups(2).group("g")
        assert group is not None and (group.state, group.generation) == (STABLE, member[1])
        await second.close()
        await first.close()


@pytest.mark.parametrize("confirmed", ["by the same leader epoch", "by a new one"])
async def test_broker_whose_session_has_expired_confirms_no_member_until_it_is_confirmed(confirmed: str) -> None:
    """Seed 2573: it had been frozen, answered a heartbeat, and the member delivered a record that was another's."""
    async with group_world() as world:
        connection = await connect(world)
        member = await join_alone(connection)
        world.groups(1).step_down()
        assert (await connection.call(heartbeat_request(*member))).error_code == ErrorCode.NOT_COORDINATOR
        if confirmed == "by a new one":
            await world.coordinate(1)
        else:
            await world.tell("__consumer_offsets", 0)
        await until(lambda: not world.groups(1).table.leadership.loading)
        assert (await connection.call(heartbeat_request(*member))).error_code == 0
        await connection.close()


async def test_broker_that_follows_coordinates_nothing_when_it_hears_that_again() -> None:
    async with group_world(brokers=2) as world:
        await world.coordinate(2)
        heard: list[int] = []
        for one, broker in world.brokers.items():
            broker.services.replicas.on_confirmed(lambda *_, one=one: heard.append(one))
        await world.tell("__consumer_offsets", 0)
        assert heard == [2]
        assert world.groups(1).table.leadership.shards == {}


async def test_pending_requests_are_refused_when_the_coordinator_moves() -> None:
    async with group_world(brokers=2) as world:
        connection, other, third = await connect(world), await connect(world), await connect(world)
        member = await join_alone(connection)
        watching = asyncio.ensure_future(other.call(watch_request({0: 100}, member=member)))
        await until(
            lambda: world.groups(1).group("g") is not None and bool(world.groups(1).table.slots["g"].positions.watches)
        )
        joining = asyncio.ensure_future(third.call(join_request(), version=3))
        await until(lambda: len(world.groups(1).group("g").members) == 2)  # type: ignore[union-attr]
        assert (await watching).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        await world.coordinate(2)
        assert (await joining).error_code == ErrorCode.NOT_COORDINATOR
        assert (await connection.call(heartbeat_request(*member))).error_code == ErrorCode.NOT_COORDINATOR
        refused = await connection.call(fetch_offsets_request(9, [0]))
        assert refused.groups[0].error_code == ErrorCode.NOT_COORDINATOR
        old = await connection.call(fetch_offsets_request(1, [0]), version=1)
        assert old.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
        assert commit_errors(await connection.call(commit_request({0: 1}))) == [ErrorCode.NOT_COORDINATOR]
        for one in (connection, other, third):
            await one.close()


async def test_loaded_state_is_served_once_it_is_replicated() -> None:
    """Broker 2 has a generation that broker 3 lacks: it may be lost, and its number reused."""
    async with group_world(brokers=3) as world:
        connection = await connect(world)
        response = await connection.call(join_request(), version=3)
        member, generation = response.member_id, response.generation_id
        world[3].replicas.fetchers.forget(world.partition(3, CONSUMER_OFFSETS_TOPIC))
        syncing = asyncio.ensure_future(connection.call(sync_request(member, generation, {member: b"mine"})))
        await until(lambda: world.partition(2, CONSUMER_OFFSETS_TOPIC).log.log_end_offset == 1)
        await world.lead(2, isr=(2, 3), topic=CONSUMER_OFFSETS_TOPIC, only=[1, 2])
        await syncing
        groups, other = world.groups(2), await connect(world, 2)
        await until(lambda: groups.loading)
        refused = await other.call(fetch_offsets_request(9, [0]))
        assert refused.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await other.call(join_request(member))).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await world.tell(CONSUMER_OFFSETS_TOPIC, 0, [3])
        await until(lambda: not groups.loading)
        group = groups.group("g")
        assert group is not None and (group.state, group.generation) == (STABLE, generation)
        for one in (connection, other):
            await one.close()


async def test_session_expiry_is_detected_by_the_timer_alone() -> None:
    async with group_world() as world:
        connection = await connect(world)
        response = await connection.call(join_request(session_ms=6000), version=3)
        await connection.call(sync_request(response.member_id, 1, {response.member_id: b"x"}))
        group = world.groups(1).group("g")
        assert group is not None and group.state is STABLE
        world.late_ms = 6000
        world.groups(1).alarm.wake()
        assert len(group.members) == 0
        assert (
            await connection.call(heartbeat_request(response.member_id, 1))
        ).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await connection.close()


# --- waiting for progress ----------------------------------------------------------------------------------------


async def test_watch_completes_at_the_awaited_commit() -> None:
    async with group_world() as world:
        watcher, committer = await connect(world), await connect(world)
        watching = asyncio.ensure_future(watcher.call(watch_request({0: 10, 1: 20})))
        await until(
            lambda: "g" in world.groups(1).table.slots and bool(world.groups(1).table.slots["g"].positions.watches)
        )
        await committer.call(commit_request({0: 9, 2: 50}))
        assert len(world.groups(1).table.slots["g"].positions.watches) == 1, (
            "not far enough, and not the right partition"
        )
        await committer.call(commit_request({1: 20}))
        response = await watching
        assert (response.error_code, positions_in(response)) == (0, {0: 9, 1: 20})
        at_once = await watcher.call(watch_request({0: 9, 3: 1}))
        assert positions_in(at_once) == {0: 9, 3: -1}
        await watcher.close()
        await committer.close()


async def test_new_epoch_of_the_same_leader_keeps_groups_and_watches() -> None:
    async with group_world() as world:
        watcher, committer = await connect(world), await connect(world)
        await committer.call(commit_request({1: 1}))
        watching = asyncio.ensure_future(watcher.call(watch_request({0: 10})))
        await until(lambda: bool(world.groups(1).table.slots["g"].positions.watches))
        slot = world.groups(1).table.slots["g"]
        await world.coordinate(1)
        assert world.groups(1).table.slots["g"] is slot
        await committer.call(commit_request({0: 10}))
        assert positions_in(await watching) == {0: 10}
        await watcher.close()
        await committer.close()


async def test_watch_times_out() -> None:
    async with group_world() as world:
        connection = await connect(world)
        response = await connection.call(watch_request({0: 10}, max_wait_ms=20))
        assert (response.error_code, positions_in(response)) == (0, {0: -1})
        assert "g" not in world.groups(1).table.slots, "asking leaves no group behind"
        response = await connection.call(watch_request({0: 10}), version=0)
        assert (response.error_code, positions_in(response)) == (0, {0: -1})
        assert "g" not in world.groups(1).table.slots, "nor does an exchange of positions"
        await connection.close()


async def test_watch_is_removed_when_its_client_disconnects() -> None:
    async with group_world() as world:
        connection = await connect(world)
        watching = asyncio.ensure_future(connection.call(watch_request({0: 10})))
        await until(lambda: "g" in world.groups(1).table.slots)
        await connection.close()
        with pytest.raises(ConnectionError):
            await watching
        await until(lambda: "g" not in world.groups(1).table.slots)


async def test_only_members_may_watch_a_group_that_has_members() -> None:
    async with group_world() as world:
        connection = await connect(world)
        member_id, generation = await join_alone(connection)
        for member, error in [
            ((member_id, generation), ErrorCode.NONE),
            ((member_id, generation + 1), ErrorCode.ILLEGAL_GENERATION),
            (("who", generation), ErrorCode.UNKNOWN_MEMBER_ID),
            (("", -1), ErrorCode.UNKNOWN_MEMBER_ID),
        ]:
            for version in (0, 1):
                response = await connection.call(watch_request({0: 0}, member=member, max_wait_ms=0), version=version)
                assert response.error_code == error
        await connection.close()


# --- administration ----------------------------------------------------------------------------------------------


async def test_only_an_empty_group_is_deleted() -> None:
    async with group_world(brokers=2) as world:
        connection = await connect(world)
        (member_id, _), request = await join_alone(connection), DeleteGroupsRequest(groups_names=["g", "nobody"])
        assert commit_errors(await connection.call(commit_request({0: 1}, group="other"))) == [0]
        refused = await connection.call(request)
        assert [row.error_code for row in refused.results] == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
        await connection.call(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)]))
        await connection.call(commit_request({0: 1}))
        assert (await connection.call(request)).results[0].error_code == 0
        assert world.groups(1).group("g") is None
        await world.coordinate(2)
        assert world.groups(2).group("g") is None, "the tombstones were replicated"
        assert world.groups(2).offsets.of("other").offset_of((TOPIC, 0)) == 1
        await connection.close()


@pytest.mark.parametrize("first", ["deletion", "commit"])
async def test_commit_during_a_deletion_is_kept_if_it_is_acknowledged(first: str) -> None:
    async with group_world(brokers=2) as world:
        connection, other = await connect(world), await connect(world)
        await connection.call(commit_request({0: 1}))
        leader = world.partition(1, CONSUMER_OFFSETS_TOPIC)
        fetchers, follower = world[2].replicas.fetchers, world.partition(2, CONSUMER_OFFSETS_TOPIC)
        fetchers.forget(follower)
        deletion = (connection, DeleteGroupsRequest(groups_names=["g"]))
        steps = [deletion, (other, commit_request({1: 2}))]
        waiting = []
        for at, request in steps if first == "deletion" else reversed(steps):
            before = leader.log.log_end_offset
            waiting.append(asyncio.ensure_future(at.call(request)))
            await until(lambda before=before: leader.log.log_end_offset > before)  # type: ignore[misc]
        fetchers.follow(follower)
        fetchers.settle()
        for one in waiting:
            await one
        assert world.groups(1).offsets.of("g").offset_of((TOPIC, 1)) == 2
        await world.coordinate(2)
        assert world.groups(2).offsets.of("g").committed.keys() == {(TOPIC, 1)}
        for one in (connection, other):
            await one.close()


async def test_offsets_of_a_deleted_topic_are_removed() -> None:
    async with group_world() as world:
        connection = await connect(world)
        await world.create_topic(1, "doomed")
        await connection.call(commit_request({0: 1}))
        await connection.call(commit_request({0: 5}, topic="doomed"))
        world.delete_topic("doomed")
        await until(lambda: list(world.groups(1).offsets.of("g").committed) == [(TOPIC, 0)])
        await connection.close()


async def test_offsets_of_an_empty_group_expire() -> None:
    async with group_world(brokers=2, offsets_retention_minutes=1) as world:
        connection = await connect(world)
        await connection.call(commit_request({0: 1}))
        await connection.call(commit_request({0: 1}, group="kept"))
        world.late_ms = 60_000
        await connection.call(commit_request({0: 2}, group="kept"))
        await world.groups(1).offsets.expire()
        assert [group.group_id for group in world.groups(1).groups()] == ["kept"]
        await world.coordinate(2)
        assert [group.group_id for group in world.groups(2).groups()] == ["kept"]
        await connection.close()
