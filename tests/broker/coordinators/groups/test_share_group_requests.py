"""Share groups over TCP: administration, and state that survives a coordinator."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch import Admin, NewTopic, Producer
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup
from anabranch.cluster.in_process import Cluster
from anabranch.faults.rule import Rule
from anabranch.inspect.draining import delete_read, draining
from anabranch.protocol.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from anabranch.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from anabranch.protocol.apis.delete_groups import DeleteGroupsRequest
from anabranch.protocol.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from anabranch.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.list_groups import ListGroupsRequest
from anabranch.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from anabranch.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from tests.broker.coordinators.share_partitions.sharing import (
    ACCEPT,
    RELEASE,
    TOPIC,
    Member,
    members,
    send,
    sharing,
    until,
)


async def ask(member: Member, request: Any) -> Any:
    return await (await member.coordinator()).call(request)


async def read_and_leave(cluster: Cluster, member: Member, *, count: int, last: int) -> None:
    """Let a member read so many new records, accept those up to the offset `last`, and leave its group."""
    await member.join()
    await member.fetch()
    await send(cluster, count)
    await member.fetch()
    assert await member.acknowledge(0, last, ACCEPT) == (0, 0)
    await member.fetch(session_epoch=-1)
    await member.beat(-1)


async def offsets(member: Member) -> list[tuple[int, int, int]]:
    """Partition, start offset and lag, as in DescribeShareGroupOffsets."""
    group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
    (described,) = (await ask(member, DescribeShareGroupOffsetsRequest(groups=[group]))).groups
    assert described.error_code == ErrorCode.NONE, described
    return [(row.partition_index, row.start_offset, row.lag) for topic in described.topics for row in topic.partitions]


async def test_group_is_listed_described_altered_and_deleted() -> None:
    async with sharing() as cluster, members(cluster, "a", "b") as (a, admin):
        await a.join()
        await a.fetch()
        listed = await ask(admin, ListGroupsRequest(types_filter=["Share"]))
        assert [(one.group_id, one.protocol_type, one.group_state) for one in listed.groups] == [
            ("g", "share", "Stable")
        ]
        (described,) = (await ask(admin, ShareGroupDescribeRequest(group_ids=["g"]))).groups
        assert [member.member_id for member in described.members] == ["a"]
        await send(cluster, 5)
        await a.fetch()
        await a.acknowledge(0, 4, ACCEPT, ACCEPT, RELEASE, ACCEPT, RELEASE)
        assert await offsets(admin) == [(0, 2, 2)]
        move = AlterShareGroupOffsetsRequest(
            group_id="g",
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=TOPIC,
                    partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)],
                )
            ],
        )
        forget = DeleteShareGroupOffsetsRequest(
            group_id="g", topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=TOPIC)]
        )
        delete = DeleteGroupsRequest(groups_names=["g"])
        assert (await ask(admin, move)).error_code == ErrorCode.NON_EMPTY_GROUP
        assert (await ask(admin, forget)).error_code == ErrorCode.NON_EMPTY_GROUP
        assert (await ask(admin, delete)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        assert (await a.fetch(session_epoch=-1)).error == 0
        await a.beat(-1)
        moved = await ask(admin, move)
        assert [row.error_code for row in moved.responses[0].partitions] == [ErrorCode.NONE]
        assert await offsets(admin) == [(0, 1, 4)]
        (row,) = move.topics[0].partitions
        row.start_offset = -(2**63)  # Kafka takes it, too
        assert (await ask(admin, move)).responses[0].partitions[0].error_code == ErrorCode.NONE
        assert await offsets(admin) == [(0, -(2**63), 5)], "what is left is that of the whole partition"
        row.start_offset = 1
        await ask(admin, move)
        a.epoch = a.session_epoch = 0
        await a.join()
        while not (got := await a.fetch()).acquired:
            a.session_epoch = 0
        assert got.acquired == [(1, 4, 1)], "a new life of the group knows nothing of the last one"
        await a.beat(-1)
        assert (await ask(admin, forget)).responses[0].error_code == ErrorCode.NONE
        assert (await ask(admin, forget)).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await offsets(admin) == []
        assert (await ask(admin, delete)).results[0].error_code == ErrorCode.NONE
        assert (await ask(admin, ListGroupsRequest())).groups == []
        assert (await ask(admin, forget)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert await offsets(admin) == [], "a group that there is not stands nowhere"
        move.group_id = forget.group_id = ""
        for request in (move, forget):
            assert (await ask(admin, request)).error_code == ErrorCode.INVALID_GROUP_ID


async def test_alter_offsets_of_missing_group_creates_it() -> None:
    async with sharing() as cluster, members(cluster, "a", "x") as (admin, x):
        x.group = "h"
        await x.join()
        await x.fetch()
        await send(cluster, 5)
        row = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)
        topic = AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[row])
        moved = await ask(admin, AlterShareGroupOffsetsRequest(group_id="g", topics=[topic]))
        assert moved.error_code == ErrorCode.NONE
        assert [one.error_code for one in moved.responses[0].partitions] == [ErrorCode.NONE]
        listed = {one.group_id: one.group_state for one in (await ask(admin, ListGroupsRequest())).groups}
        assert listed["g"] == "Empty" and await offsets(admin) == [(0, 2, 3)]


async def test_alter_offsets_creates_the_share_state_topic() -> None:
    async with sharing() as cluster, members(cluster, "admin") as (admin,):
        await send(cluster, 3)
        row = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
        topic = AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[row])
        moved = await ask(admin, AlterShareGroupOffsetsRequest(group_id="g", topics=[topic]))
        assert (moved.error_code, moved.responses[0].partitions[0].error_code) == (ErrorCode.NONE, ErrorCode.NONE)
        assert await offsets(admin) == [(0, 1, 2)]


async def test_group_of_another_type_is_refused_before_its_topics_are_checked() -> None:
    async with sharing() as cluster, members(cluster, "admin") as (admin,):
        beat = ConsumerGroupHeartbeatRequest(
            group_id="other",
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        assert (await ask(admin, beat)).error_code == ErrorCode.NONE
        row = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
        unknown = AlterShareGroupOffsetsRequestTopic(topic_name="unknown", partitions=[row])
        forgotten = DeleteShareGroupOffsetsRequestTopic(topic_name="unknown")
        for request in (
            AlterShareGroupOffsetsRequest(group_id="other", topics=[unknown]),
            DeleteShareGroupOffsetsRequest(group_id="other", topics=[forgotten]),
            DeleteShareGroupOffsetsRequest(group_id="missing", topics=[forgotten]),
        ):
            refused = await ask(admin, request)
            assert (refused.error_code, refused.responses) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        created = await ask(admin, AlterShareGroupOffsetsRequest(group_id="missing", topics=[unknown]))
        assert created.error_code == ErrorCode.NONE
        assert created.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_offset_delete_finds_no_offsets_in_a_share_group() -> None:
    async with sharing() as cluster, members(cluster, "a") as (a,):
        await a.join()
        row = OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        refused = await ask(a, OffsetDeleteRequest(group_id="g", topics=[row]))
        assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_malformed_share_coordinator_key_is_refused() -> None:
    async with sharing() as cluster, members(cluster, "a") as (admin,):
        good = "a:b:AAAAAAAAAAAAAAAAAAAAAQ:0"
        wrong = ["", "g", "g:x:0", "g:AAAAAAAAAAAAAAAAAAAAAQ:", f"{good}x", ":AAAAAAAAAAAAAAAAAAAAAQ:0"]
        found = await ask(admin, FindCoordinatorRequest(key_type=2, coordinator_keys=[good, *wrong]))
        codes = [one.error_code for one in found.coordinators]
        assert codes[0] in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert codes[1:] == [ErrorCode.INVALID_REQUEST] * len(wrong)


async def test_topic_deletion_deletes_its_share_state() -> None:
    async with sharing() as cluster, members(cluster, "a", "b") as (a, admin):
        await read_and_leave(cluster, a, count=2, last=1)
        (node,) = cluster.nodes.values()
        group, (shard,) = (
            node.services.groups.table.slots["g"].group,
            [one for one in node.services.shares.coordinator.shards() if one.states],
        )
        assert isinstance(group, ShareGroup)
        async with Admin(cluster.bootstrap_servers) as user:
            await user.delete_topics([TOPIC])
        await until(lambda: not shard.states and not group.initialized)
        assert await offsets(admin) == []
        assert (await ask(admin, DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == ErrorCode.NONE
        await cluster.stop_broker(1)
        await cluster.start_broker(1)
        coordinator = cluster.nodes[1].services.shares.coordinator
        await until(lambda: {one.loading for one in coordinator.shards()} == {False})
        assert not any(one.states for one in coordinator.shards())


async def test_topics_that_join_while_others_initialize_are_each_initialized_once() -> None:
    async with (
        sharing() as cluster,
        members(cluster, "a", "b", "c") as (a, b, c),
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic(name=name, partitions=1) for name in "uv"])
        await admin.wait_for_topic("v")
        await a.join()
        rule = cluster.faults.add(Rule(api=("InitializeShareGroupState",), between_brokers=True, hold=True))
        await b.beat(topics=["u"])
        await rule.wait_hit()
        await c.beat(topics=["u", "v"])
        rule.remove()
        rule.release()
        await c.join(2)
        states = [
            state for shard in cluster.nodes[1].services.shares.coordinator.shards() for state in shard.states.values()
        ]
        assert [state.snapshot_epoch for state in states] == [0, 0, 0]


async def test_group_survives_a_coordinator_failover() -> None:
    async with sharing(3) as cluster, members(cluster, "a") as (a,):
        await a.join()
        epoch = a.epoch
        coordinator = next(broker for broker, node in cluster.nodes.items() if "g" in node.services.groups.table.slots)
        await cluster.nodes.pop(coordinator).stop()
        while True:
            answer = await a.beat()
            if answer.error_code == ErrorCode.NONE:
                break
            assert answer.error_code in (
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ), answer
            await asyncio.sleep(0.01)
        assert (answer.member_epoch, answer.assignment) == (epoch, None), "it goes on where it was"


async def test_share_group_is_refused_for_other_group_types_and_kafka_versions() -> None:
    async with sharing() as cluster, members(cluster, "a", "x") as (a, x):
        await a.join()
        beat = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        assert (await ask(a, beat)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        x.group = "h"
        beat.group_id = "h"
        assert (await ask(x, beat)).error_code == ErrorCode.NONE
        assert (await x.beat()).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_recreated_partition_is_shared_from_the_groups_previous_offset() -> None:
    """Like committed offsets, its state stays: records from before the group sees it again are not skipped."""
    async with (
        sharing() as cluster,
        members(cluster, "a") as (a,),
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        (node,) = cluster.nodes.values()
        configs = {"enable.ordered.delivery": "true", "reshard.legacy.consumers.shrink": "warn"}
        await admin.create_topics([NewTopic(name="ordered", partitions=2, configs=configs)])
        await admin.wait_for_topic("ordered")
        await a.beat(topics=["ordered"])
        await a.join(2)
        await a.fetch()
        for _ in range(3):
            await producer.send_and_wait("ordered", b"old", partition=1)
        await a.fetch()
        assert await a.acknowledge(0, 2, ACCEPT, index=1) == (0, 0)
        await admin.create_partitions("ordered", 1, allow_shrink=True)
        await delete_read(admin, "ordered", await draining(admin, "ordered"), force=False)
        await until(lambda: node.services.metadata.partition("ordered", 1) is None)
        assert await offsets(a) == [(0, 0, 0)]

        await admin.create_partitions("ordered", 2)
        await until(lambda: node.services.metadata.partition("ordered", 1) is not None)
        await producer.send_and_wait("ordered", b"new", partition=1)
        while sum(map(len, a.assigned.values())) < 2:
            await a.beat()
        got = await a.fetch(wait_ms=60_000)
        assert list(got.values.values()) == [b"new"], got
        assert [partition for partition, _, left in await offsets(a) if left] == [1]


def moving(start: int) -> AlterShareGroupOffsetsRequest:
    row = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=start)
    return AlterShareGroupOffsetsRequest(
        group_id="g", topics=[AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[row])]
    )


async def test_member_that_joins_while_offsets_are_altered_starts_there() -> None:
    async with sharing() as cluster, members(cluster, "a", "b", "admin") as (a, b, admin):
        await a.join()
        await a.fetch()
        await send(cluster, 3)
        await a.fetch(session_epoch=-1)
        await a.beat(-1)
        rule = cluster.faults.add(Rule(api=("InitializeShareGroupState",), between_brokers=True, hold=True, times=1))
        altered = asyncio.create_task(ask(admin, moving(1)))
        await rule.wait_hit()
        assert (await b.beat()).error_code == ErrorCode.NONE
        rule.release()
        assert (await altered).responses[0].partitions[0].error_code == ErrorCode.NONE
        await b.join()
        assert await offsets(admin) == [(0, 1, 2)]
        assert (await b.fetch()).acquired == [(1, 2, 1)]


async def test_member_that_joins_while_its_group_is_deleted_reads_on() -> None:
    async with sharing() as cluster, members(cluster, "a", "b", "admin") as (a, b, admin):
        await a.join()
        await a.beat(-1)
        rule = cluster.faults.add(Rule(api=("DeleteShareGroupState",), between_brokers=True, hold=True, times=1))
        deleted = asyncio.create_task(ask(admin, DeleteGroupsRequest(groups_names=["g"])))
        await rule.wait_hit()
        await b.beat()
        rule.release()
        assert (await deleted).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await b.join()
        assert (await b.fetch()).errors == {0: ErrorCode.NONE}


async def test_group_whose_deletion_fails_half_way_reads_on() -> None:
    async with sharing(partitions=2) as cluster, members(cluster, "a", "b", "admin") as (a, b, admin):
        await a.join(2)
        await a.beat(-1)
        broken = cluster.faults.add(
            Rule(api=("DeleteShareGroupState",), between_brokers=True, error="UNKNOWN_SERVER_ERROR", after=1)
        )
        refused = await ask(admin, DeleteGroupsRequest(groups_names=["g"]))
        assert refused.results[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        broken.remove()
        await b.join(2)
        assert (await b.fetch()).errors == {0: ErrorCode.NONE, 1: ErrorCode.NONE}


async def test_delayed_initialization_does_not_override_later_acknowledgements() -> None:
    async with sharing(request_timeout_ms="2000") as cluster, members(cluster, "a", "admin") as (a, admin):
        late = cluster.faults.add(Rule(api=("InitializeShareGroupState",), between_brokers=True, hold=True, times=1))
        await a.join()
        assert late.hits == 1
        await a.fetch()
        await send(cluster, 3)
        await a.fetch()
        assert await a.acknowledge(0, 1, ACCEPT) == (0, 0)
        assert await offsets(admin) == [(0, 2, 1)]
        late.release()
        await a.fetch()
        assert await offsets(admin) == [(0, 2, 1)]


async def test_altered_offsets_are_read_although_an_earlier_member_kept_its_session() -> None:
    async with sharing() as cluster, members(cluster, "a", "b", "admin") as (a, b, admin):
        await send(cluster, 3)
        await a.join()
        assert (await a.fetch()).acquired == [], "the group begins at the end"
        await a.beat(-1)  # as if it had frozen, and its membership had expired
        assert (await ask(admin, moving(1))).responses[0].partitions[0].error_code == ErrorCode.NONE
        await b.join()
        assert (await b.fetch()).acquired == [(1, 2, 1)]
        assert await b.acknowledge(1, 2, ACCEPT) == (0, 0)


async def test_group_that_is_created_again_begins_anew_although_an_earlier_member_kept_its_session() -> None:
    async with sharing() as cluster, members(cluster, "a", "b", "admin") as (a, b, admin):
        await a.join()
        assert (await a.fetch()).acquired == []
        await a.beat(-1)
        assert (await ask(admin, DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == ErrorCode.NONE
        await send(cluster, 3)
        await b.join()
        assert (await b.fetch()).acquired == [], "the new group begins at the end, too"
        await send(cluster, 1)
        assert (await b.fetch()).acquired == [(3, 3, 1)]


async def test_partition_that_cannot_be_initialized_does_not_hold_up_the_others() -> None:
    async with sharing(partitions=2) as cluster, members(cluster, "a") as (a,):
        apis = ("InitializeShareGroupState",)
        rule = cluster.faults.add(
            Rule(api=apis, between_brokers=True, partition=(0,), error="COORDINATOR_NOT_AVAILABLE")
        )
        async with asyncio.timeout(20):
            await a.join(1)
            assert list(a.assigned.values()) == [[1]]
            rule.remove()
            await a.join(2)


async def test_offsets_are_described_although_share_coordinators_do_not_answer() -> None:
    async with (
        sharing(partitions=8, request_timeout_ms="1500") as cluster,
        members(cluster, "a", "admin") as (a, admin),
    ):
        await a.join(8)
        await a.fetch()
        broken = {"api": ("ReadShareGroupStateSummary", "InitializeShareGroupState"), "between_brokers": True}
        cluster.faults.add(Rule(**broken, error="COORDINATOR_NOT_AVAILABLE", partition=tuple(range(7))))  # type: ignore[arg-type]
        await a.fetch(session_epoch=-1)
        await a.beat(-1)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
        (described,) = (await ask(admin, DescribeShareGroupOffsetsRequest(groups=[group]))).groups
        codes = [row.error_code for row in described.topics[0].partitions]
        assert codes == [*[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 7, ErrorCode.NONE]
        assert loop.time() - began_s < 7, "they are asked together"
        move = moving(1)
        move.topics[0].partitions = [
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0) for index in range(8)
        ]
        began_s = loop.time()
        assert [row.error_code for row in (await ask(admin, move)).responses[0].partitions] == codes
        assert loop.time() - began_s < 7


async def test_group_whose_offsets_could_not_be_altered_reads_on_where_it_was() -> None:
    """Its state was initialized anew by the next member, so it skipped what it had not processed."""
    async with sharing() as cluster, members(cluster, "a", "b", "admin") as (a, b, admin):
        await read_and_leave(cluster, a, count=3, last=0)
        broken = cluster.faults.add(
            Rule(api=("InitializeShareGroupState",), between_brokers=True, error="UNKNOWN_SERVER_ERROR")
        )
        altered = await ask(admin, moving(2))
        assert altered.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        broken.remove()
        assert await offsets(admin) == [(0, 1, 2)]
        await b.join()
        assert [one[:2] for one in (await b.fetch()).acquired] == [(1, 2)]


async def test_group_whose_coordinator_moves_while_offsets_are_altered_reads_on_where_it_was() -> None:
    async with sharing() as cluster, members(cluster, "a", "b", "admin") as (a, b, admin):
        services = cluster.nodes[1].services
        await read_and_leave(cluster, a, count=3, last=0)
        broken = cluster.faults.add(
            Rule(api=("InitializeShareGroupState",), between_brokers=True, error="COORDINATOR_NOT_AVAILABLE")
        )
        altered = asyncio.create_task(ask(admin, moving(2)))
        await broken.wait_hit()
        joined = await b.beat()
        assert joined.assignment.topic_partitions == [], "it waits for the new start"
        services.groups.step_down()
        for partition in services.replicas.partitions():
            if partition.topic == CONSUMER_OFFSETS_TOPIC:
                services.groups.on_leader(partition.topic, partition.index, partition.leader_epoch)
        async with asyncio.timeout(20):
            await b.join()
        assert [one[:2] for one in (await b.fetch()).acquired] == [(1, 2)]
        altered.cancel()


async def test_partition_that_a_resize_adds_is_shared_from_its_start() -> None:
    """By `share.auto.offset.reset` the group would skip what is written before its members know the partition."""
    async with (
        sharing() as cluster,
        members(cluster, "a", "x") as (a, x),
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        (node,) = cluster.nodes.values()
        await a.join()
        await a.fetch()
        await admin.create_partitions(TOPIC, 4)
        await until(lambda: node.services.metadata.partition(TOPIC, 3) is not None)
        for index in range(4):
            await producer.send_and_wait(TOPIC, b"%d" % index, partition=index)
        await a.join(4)
        acquired: list[tuple[int, int, int]] = []
        async with asyncio.timeout(20):
            while len(acquired) < 4:
                acquired += (await a.fetch(wait_ms=500)).acquired
        assert acquired == [(0, 0, 1)] * 4
        x.group = "new"
        await x.join(4)
        assert (await x.fetch()).acquired == [], "another group begins by its own setting"


async def test_new_group_is_assigned_partitions_although_a_deleted_one_initialized_them_late() -> None:
    async with (
        sharing() as cluster,
        members(cluster, "a", "b", "admin") as (a, b, admin),
        Admin(cluster.bootstrap_servers) as user,
    ):
        await user.create_topics([NewTopic(name="u", partitions=1)])
        await user.wait_for_topic("u")
        await a.join()
        unavailable = cluster.faults.add(
            Rule(api=("InitializeShareGroupState",), between_brokers=True, error="COORDINATOR_NOT_AVAILABLE")
        )
        await a.beat(topics=["u"])
        await unavailable.wait_hit()
        await a.beat(-1)
        assert (await ask(admin, DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code == ErrorCode.NONE
        unavailable.remove()
        coordinator = cluster.nodes[1].services.shares.coordinator
        await until(lambda: any(shard.states for shard in coordinator.shards()))
        await b.beat(topics=["u"])
        async with asyncio.timeout(20):
            await b.join()
        assert (await b.fetch()).errors == {0: ErrorCode.NONE}
