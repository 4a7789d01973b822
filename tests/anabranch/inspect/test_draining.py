"""The display of retiring partitions."""

from __future__ import annotations

import pytest

from anabranch import Admin, Cluster, NewTopic, Producer
from anabranch.clients.group_admin import commit_offsets
from anabranch.faults.rule import Rule
from anabranch.inspect.draining import Draining, delete_read, drain_lines, draining
from anabranch.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition
from tests.broker.coordinators.share_partitions.sharing import ACCEPT, members

PARTITION = TopicPartition("t", 5)


def test_read_by_all_is_the_lowest_commit() -> None:
    assert Draining(PARTITION, 1000, {"a": 900, "b": 20}).read_by_all == 20
    assert Draining(PARTITION, 1000, {}).read_by_all == 1000, "nobody is waited for"


def test_each_group_has_a_line_with_remaining_records() -> None:
    lines = drain_lines("t", [Draining(PARTITION, 1000, {"slow": 20, "ahead": 1001})])
    assert [line.split() for line in lines] == [
        ["partition", "end", "group", "committed", "to", "read"],
        ["5", "1,000", "ahead", "1,001", "0"],
        ["5", "1,000", "slow", "20", "980"],
    ]


def test_topic_without_retiring_partitions_is_reported() -> None:
    assert drain_lines("t", []) == ["t has no retiring partitions"]
    assert "(no group reads the topic)" in drain_lines("t", [Draining(PARTITION, 3, {})])[1]


async def test_remaining_records_of_streams_group_are_not_read_by_all() -> None:
    """Its coordinator assigns the tasks (KIP-1071); ListGroups does not show it as a consumer group."""
    async with Cluster(brokers=1, kafka="4.2") as cluster, Admin(cluster.bootstrap_servers) as admin:
        configs = {"enable.ordered.delivery": "true", "reshard.legacy.consumers.shrink": "warn"}
        await admin.create_topics([NewTopic(name="t", partitions=2, configs=configs)])
        await admin.wait_for_topic("t")
        async with Producer(cluster.bootstrap_servers) as producer:
            for number in range(40):
                await producer.send("t", b"x", b"%d" % number)
        await commit_offsets(admin.network, "words", {TopicPartition("t", 1): 1})
        response = await admin.network.call_coordinator(
            "words", joining("words", "a"), lambda answer: answer.error_code
        )
        assert response.error_code == ErrorCode.NONE, response
        await admin.create_partitions("t", 1, allow_shrink=True)
        (sealed,) = await draining(admin, "t")
        assert (sealed.committed, sealed.read_by_all) == ({"words": 1}, 1)
        assert sealed.end > 1


async def test_records_that_are_not_replicated_yet_are_not_reported_as_deleted() -> None:
    async with Cluster(brokers=2) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=2, replication_factor=2)])
        await admin.wait_for_topic("t", replicas=2)
        with cluster.faults(Rule(api=("Fetch",), between_brokers=True, hold=True)):
            async with Producer(cluster.bootstrap_servers, acks=1) as producer:
                for _ in range(3):
                    await producer.send_and_wait("t", b"x", partition=1)
            await admin.create_partitions("t", 1, allow_shrink=True)
            (sealed,) = await draining(admin, "t")
            assert sealed.end == 3
            with pytest.raises(KafkaError, match=r"OFFSET_OUT_OF_RANGE.*t-1: in-sync replicas lack records"):
                await delete_read(admin, "t", [sealed], force=True)


def joining(group: str, member: str) -> StreamsGroupHeartbeatRequest:
    """The first heartbeat of a member of an application that reads "t"."""
    return StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=0,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=60_000,
        process_id=member,
        client_tags=[],
        topology=Topology(epoch=0, subtopologies=[part("t")]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def part(source: str) -> Subtopology:
    """An application that reads one topic and keeps nothing."""
    return Subtopology(
        subtopology_id="0",
        source_topics=[source],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )


async def test_remaining_records_of_share_group_are_not_read_by_all() -> None:
    async with (
        Cluster(brokers=1, kafka="4.2") as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        members(cluster, "a") as (member,),
    ):
        configs = {"enable.ordered.delivery": "true", "reshard.legacy.consumers.shrink": "warn"}
        await admin.create_topics([NewTopic(name="t", partitions=2, configs=configs)])
        await admin.wait_for_topic("t")
        await member.join(2)
        assert (await member.fetch()).acquired == []
        async with Producer(cluster.bootstrap_servers) as producer:
            for _ in range(10):
                await producer.send("t", b"x", partition=1)
        assert (await member.fetch()).acquired
        assert await member.acknowledge(0, 3, ACCEPT, index=1) == (0, 0)
        await admin.create_partitions("t", 1, allow_shrink=True)
        (sealed,) = await draining(admin, "t")
        assert (sealed.committed, sealed.read_by_all) == ({"g": 4}, 4)
        assert await delete_read(admin, "t", [sealed], force=False) == [
            "t-1: deleted records before offset 4",
            "t-1: kept the rest for g",
        ]
        assert (await member.fetch()).acquired, "the cut has begun another epoch of the leader"
        assert await member.acknowledge(4, 9, ACCEPT, index=1) == (0, 0)
        (sealed,) = await draining(admin, "t")
        assert sealed.read_by_all == sealed.end == 10
        assert await delete_read(admin, "t", [sealed], force=False) == ["t-1: deleted records before offset 10"]
