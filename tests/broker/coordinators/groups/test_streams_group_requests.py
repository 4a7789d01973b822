"""Streams groups over TCP: responses are replicated, and survive the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import Admin, Cluster, NewTopic, Producer
from anabranch.broker.coordinators.consumer_groups.timers import Timer
from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.broker.coordinators.streams_groups.streams_heartbeat import WHOLE_GROUP
from anabranch.clients.connection import Connection
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest
from anabranch.protocol.apis.leave_group import LeaveGroupRequest
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from anabranch.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from anabranch.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest
from anabranch.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskIds, Topology
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from tests.broker.coordinators.streams_groups.world import COUNTS, subtopology
from tests.broker.coordinators.world import (
    TOPIC,
    GroupWorld,
    commit_errors,
    commit_request,
    fetch_offsets_request,
    group_world,
    heartbeat_request,
    join_request,
    offsets_in,
)
from tests.broker.replication.replica_cluster import until

PLAIN = [subtopology("0", TOPIC)]


@asynccontextmanager
async def wired(brokers: int = 1, **settings: Any) -> AsyncIterator[tuple[GroupWorld, Connection]]:
    """Brokers that show themselves as Kafka 4.2, and deal tasks without waiting for more members."""
    settings = {"kafka_version": "4.2", "group_streams_initial_rebalance_delay_ms": 0} | settings
    async with group_world(brokers=brokers, **settings) as world:
        connection = await world[1].connect()
        try:
            yield world, connection
        finally:
            await connection.close()


def beat(
    member_id: str, epoch: int = 0, owned: list[int] | None = None, parts: Any = PLAIN, **more: Any
) -> StreamsGroupHeartbeatRequest:
    tasks = None if owned is None and epoch else [TaskIds(subtopology_id="0", partitions=owned)] if owned else []
    if epoch == 0:
        joins = {"rebalance_timeout_ms": 60_000, "process_id": member_id, "client_tags": []}
        more = joins | {"topology": Topology(epoch=0, subtopologies=list(parts))} | more
    none = None if tasks is None else list[TaskIds]()
    lists = {"active_tasks": tasks, "standby_tasks": none, "warmup_tasks": none}
    fields = {"group_id": "g", "endpoint_information_epoch": 0} | lists | more
    return StreamsGroupHeartbeatRequest(member_id=member_id, member_epoch=epoch, **fields)


def dealt(response: Any) -> list[int] | None:
    assert response.error_code == ErrorCode.NONE, response
    rows = response.active_tasks
    return None if rows is None else [index for row in rows for index in row.partitions]


def group_of(world: GroupWorld, broker: int = 1) -> StreamsGroup:
    group = world.groups(broker).group("g")
    assert isinstance(group, StreamsGroup)
    return group


async def described(connection: Connection) -> Any:
    response = await connection.call(StreamsGroupDescribeRequest(group_ids=["g"]))
    return response.groups[0]


async def test_rebalance_continues_after_a_coordinator_failover() -> None:
    async with wired(2) as (world, first):
        assert dealt(await first.call(beat("a"))) == [0, 1, 2, 3]
        assert dealt(await first.call(beat("b"))) == []
        assert dealt(await first.call(beat("a", 2))) == [0, 1]  # has to give up two
        before = group_of(world)
        await world.kill(1)
        await world.coordinate(2, isr=(2,))
        after = group_of(world, 2)
        assert after is not before
        assert (after.members, after.targets, after.topology) == (before.members, before.targets, before.topology)
        second = await world[2].connect()
        assert dealt(await second.call(beat("b", 3))) is None
        assert (await second.call(beat("a", 2, owned=[0, 1]))).member_epoch == 3
        assert dealt(await second.call(beat("b", 3))) == [2, 3]
        description = await described(second)
        assert (description.group_state, description.group_epoch, description.assignment_epoch) == ("Stable", 3, 3)
        await second.close()


async def test_responses_wait_for_replication() -> None:
    """Broker 2 is in the ISR but dead: the leader has the records, but they are not committed."""
    async with wired(2) as (world, connection):
        await connection.call(beat("a"))
        await world.kill(2)
        pending = [asyncio.create_task(connection.call(beat("b")))]
        await until(lambda: group_of(world).epoch == 3)
        for request in (StreamsGroupDescribeRequest(group_ids=["g"]), beat("a", 2)):
            pending.append(asyncio.create_task((await world[1].connect()).call(request)))
        leader = world.partition(1, CONSUMER_OFFSETS_TOPIC)
        await until(lambda: bool(group_of(world).members["a"].revoking))
        assert leader.high_watermark < leader.log.log_end_offset and not any(one.done() for one in pending)
        await world.coordinate(1, isr=(1,))
        joined, description, stayed = await asyncio.gather(*pending)
        assert (joined.member_epoch, description.groups[0].group_epoch, dealt(stayed)) == (3, 3, [0, 1])


async def test_change_refused_by_the_log_is_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    async with wired(2) as (world, connection):
        await connection.call(beat("a"))
        partition = world.brokers[1].services.replicas.leader_of(CONSUMER_OFFSETS_TOPIC, 0)

        def refuse() -> None:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "one is too few")

        monkeypatch.setattr(partition, "check_min_isr", refuse)
        try:
            assert (await connection.call(beat("b"))).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert (group_of(world).epoch, list(group_of(world).members)) == (2, ["a"])
        finally:
            monkeypatch.undo()
        assert (await connection.call(beat("b"))).member_epoch == 3


async def test_member_with_expired_session_is_removed_after_a_failover() -> None:
    async with wired() as (world, connection):
        await connection.call(beat("a"))
        await connection.call(beat("b"))
        await world.restart(1)
        await world.coordinate(1)
        connection = await world[1].connect()
        coordinator: GroupCoordinator = world.groups(1)
        world.late_ms = 30_000
        assert dealt(await connection.call(beat("a", 2, owned=[0, 1, 2, 3]))) == [0, 1]
        world.late_ms = 46_000
        coordinator.alarm.wake()
        await until(lambda: list(group_of(world).members) == ["a"])
        assert (await connection.call(beat("b", 3))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        await connection.close()


async def test_member_that_does_not_revoke_is_removed_after_a_failover() -> None:
    async with wired() as (world, connection):
        await connection.call(beat("a"))
        await connection.call(beat("b"))
        await connection.call(beat("a", 2))
        await world.restart(1)
        await world.coordinate(1)
        connection = await world[1].connect()
        for late_ms in (30_000, 59_000):
            world.late_ms = late_ms
            assert (await connection.call(beat("a", 2))).member_epoch == 2
            assert (await connection.call(beat("b", 3))).member_epoch == 3
        world.late_ms = 61_000
        world.groups(1).alarm.wake()
        await until(lambda: list(group_of(world).members) == ["b"])
        assert dealt(await connection.call(beat("b", 3))) == [0, 1, 2, 3]
        await connection.close()


async def test_initial_rebalance_delay_gathers_the_first_members() -> None:
    async with wired(group_streams_initial_rebalance_delay_ms=3_000) as (world, connection):
        first = await connection.call(beat("a"))
        assert (first.member_epoch, [one.status_code for one in first.status]) == (1, [5])
        await connection.call(beat("b"))
        world.late_ms = 3_001
        world.groups(1).alarm.wake()
        await until(lambda: not waiting(world))
        assert dealt(await connection.call(beat("a", 1))) == [0, 2]
        assert dealt(await connection.call(beat("b", 1))) == [1, 3]


def waiting(world: GroupWorld) -> bool:
    return group_of(world).timers.due(WHOLE_GROUP, Timer.INITIAL) is not None


async def test_offsets_are_fenced_by_the_member_epoch_and_survive_the_members() -> None:
    async with wired() as (world, connection):
        await connection.call(beat("a"))
        refused = await connection.call(commit_request({0: 5}, member=("a", 3)))
        assert commit_errors(refused) == [ErrorCode.STALE_MEMBER_EPOCH]
        assert commit_errors(await connection.call(commit_request({0: 5}, member=("a", 2)))) == [ErrorCode.NONE]
        assert offsets_in(await connection.call(fetch_offsets_request(9, [0]), version=9), 9) == {0: 5}
        row = OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        forget = OffsetDeleteRequest(group_id="g", topics=[row])
        (topic,) = (await connection.call(forget)).topics
        assert topic.partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        delete = DeleteGroupsRequest(groups_names=["g"])
        assert (await connection.call(delete)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        assert (await connection.call(beat("a", -1))).member_epoch == -1
        assert commit_errors(await connection.call(commit_request({0: 7}))) == [ErrorCode.NONE]
        await world.restart(1)
        await world.coordinate(1)
        connection = await world[1].connect()
        assert offsets_in(await connection.call(fetch_offsets_request(9, [0]), version=9), 9) == {0: 7}
        assert (await described(connection)).group_state == "Empty"
        (topic,) = (await connection.call(forget)).topics
        assert topic.partitions[0].error_code == ErrorCode.NONE
        assert offsets_in(await connection.call(fetch_offsets_request(9, [0]), version=9), 9) == {0: -1}
        assert (await connection.call(delete)).results[0].error_code == ErrorCode.NONE
        assert (await described(connection)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await connection.close()
        await world.restart(1)
        await world.coordinate(1)
        assert world.groups(1).groups() == []


async def test_streams_group_is_refused_for_other_group_types() -> None:
    async with wired(share_coordinator_state_topic_replication_factor=1) as (_, connection):
        await connection.call(beat("a"))
        consumer = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        share = ShareGroupHeartbeatRequest(group_id="g", member_id="s", member_epoch=0, subscribed_topic_names=[TOPIC])
        assert (await connection.call(consumer)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await connection.call(share)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        joined = await connection.call(join_request(), version=3)
        assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (await connection.call(heartbeat_request("a", 2))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        (group,) = (await connection.call(DescribeGroupsRequest(groups=["g"]), version=6)).groups
        assert (group.error_code, group.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
        listed = await connection.call(ListGroupsRequest(types_filter=["Streams"], states_filter=["stable"]))
        assert [(one.group_type, one.protocol_type, one.group_state) for one in listed.groups] == [
            ("streams", "streams", "Stable")
        ]
        await connection.call(beat("a", -1))
        assert (await connection.call(share)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert (await connection.call(heartbeat_request("a", 2))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert (await described(connection)).group_state == "Empty", "a question changes nothing"


async def test_empty_group_changes_its_type_and_keeps_its_offsets() -> None:
    async with wired() as (world, connection):
        joined = await connection.call(join_request(), version=3)
        assert (await connection.call(beat("a"))).error_code == ErrorCode.GROUP_ID_NOT_FOUND, "it has a member"
        await connection.call(LeaveGroupRequest(group_id="g", member_id=joined.member_id), version=2)
        await connection.call(commit_request({0: 7}))
        assert (await connection.call(beat("a"))).member_epoch == 2
        await connection.call(beat("a", -1))
        again = await connection.call(join_request(), version=3)
        assert again.error_code == ErrorCode.NONE, again
        await connection.call(LeaveGroupRequest(group_id="g", member_id=again.member_id), version=2)
        await connection.call(beat("b"))
        await world.restart(1)
        await world.coordinate(1)
        assert list(group_of(world).members) == ["b"]
        connection = await world[1].connect()
        assert offsets_in(await connection.call(fetch_offsets_request(9, [0]), version=9), 9) == {0: 7}
        await connection.call(beat("b", -1))
        deleted = await connection.call(DeleteGroupsRequest(groups_names=["g"]))
        assert deleted.results[0].error_code == ErrorCode.NONE
        await connection.close()
        await world.restart(1)
        await world.coordinate(1)
        assert world.groups(1).groups() == [], "the classic group before it does not come back"


@pytest.mark.parametrize("shown", ["3.9", "4.0", "4.1"])
async def test_older_kafka_profile_does_not_serve_streams_groups(shown: str) -> None:
    async with wired(kafka_version=shown) as (_, connection):
        for request in (beat("a"), StreamsGroupDescribeRequest(group_ids=["g"])):
            with pytest.raises(KafkaError, match="does not serve"):
                await connection.call(request)


async def test_streams_protocol_can_be_disabled() -> None:
    async with wired(group_coordinator_rebalance_protocols="classic,consumer") as (world, connection):
        assert (await connection.call(beat("a"))).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await described(connection)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert world.groups(1).groups() == []


async def test_internal_topics_are_created_from_the_topology() -> None:
    settings = {"group.streams.initial.rebalance.delay.ms": "0"}
    async with Cluster(1, kafka="4.2", properties=settings) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=3, replication_factor=1)])
        await admin.wait_for_topic("t")
        connection = await admin.network.connection(await admin.network.coordinator("g"))
        response = await connection.call(beat("a", parts=COUNTS))
        assert [one.status_code for one in response.status] == [3], response
        for name in ("words", "counts"):
            await admin.wait_for_topic(name)
        response = await connection.call(beat("a", response.member_epoch))
        assert dealt(response) == [0, 1, 2, 0, 1, 2] and response.status == []
        refused = await connection.call(beat("b", parts=[subtopology("0", CONSUMER_OFFSETS_TOPIC)], group_id="h"))
        assert refused.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY


async def test_resize_does_not_gate_partitions_of_streams_groups() -> None:
    settings = {"group.streams.initial.rebalance.delay.ms": "0"}
    gated = {"enable.ordered.delivery": "true", "reshard.legacy.consumers": "gate"}
    async with Cluster(1, kafka="4.2", properties=settings) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=2, replication_factor=1, configs=gated)])
        await admin.wait_for_topic(TOPIC)
        async with Producer(cluster.bootstrap_servers) as producer:
            for number in range(10):
                await producer.send_and_wait(TOPIC, b"%d" % number, b"%d" % number)
        connection = await admin.network.connection(await admin.network.coordinator("g"))
        assert dealt(await connection.call(beat("a"))) == [0, 1]
        await admin.create_partitions(TOPIC, 4)
        assert dealt(await connection.call(beat("a", 2))) == [0, 1, 2, 3], "although nothing before the cut was read"
