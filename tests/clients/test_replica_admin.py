"""Replicas through `Admin`: deleted records, elections, moved partitions and logs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from anabranch import Admin, NewTopic, Producer, TopicPartition
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.test_admin import cluster_and_admin

T0 = TopicPartition("t", 0)


async def test_records_are_deleted_at_their_leaders() -> None:
    async with cluster_and_admin() as (cluster, admin):
        await admin.create_topics([NewTopic(name="t", assignments={0: [1], 1: [2]})])
        async with Producer(cluster.bootstrap_servers) as producer:
            for partition in (0, 0, 0, 1, 1):
                await producer.send_and_wait("t", b"x", partition=partition)
        T1 = TopicPartition("t", 1)
        assert await admin.delete_records({T0: 2, T1: -1}) == {T0: 2, T1: 2}
        with pytest.raises(KafkaError) as refused:
            await admin.delete_records({T0: 9})
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.delete_records({"t": 0}),
        lambda admin: admin.elect_leaders(["t"]),
        lambda admin: admin.alter_partition_reassignments({"t": [1]}),
        lambda admin: admin.list_partition_reassignments("t"),
        lambda admin: admin.alter_replica_log_dirs(1, {"t": "/a"}),
    ],
    ids=["delete_records", "elect", "reassign", "list", "log_dirs"],
)
async def test_what_is_not_a_partition_is_refused_with_what_was_meant(call: Callable[[Admin], Awaitable[Any]]) -> None:
    async with cluster_and_admin() as (_, admin):
        with pytest.raises(TypeError, match=r"a partition is a TopicPartition, .* not 't'"):
            await call(admin)


async def test_plain_pair_is_a_partition() -> None:
    async with cluster_and_admin() as (_, admin):
        await admin.create_topics([NewTopic(name="t", assignments={0: [1]})])
        await admin.wait_for_topic("t")
        pair: Any = ("t", 0)
        assert await admin.delete_records({pair: -1}) == {T0: 0}
        assert list(await admin.elect_leaders([pair])) == [T0]
        assert await admin.list_partition_reassignments([pair]) == {}


async def test_leaders_are_elected_and_replicas_moved() -> None:
    async with cluster_and_admin() as (_, admin):
        await admin.create_topics([NewTopic(name="t", assignments={0: [1, 2]})])
        await admin.wait_for_topic("t", replicas=2)
        outcome = await admin.elect_leaders([T0, TopicPartition("t", 9)])
        codes = {one.partition: error.code for one, error in outcome.items() if error is not None}
        assert codes == {0: ErrorCode.ELECTION_NOT_NEEDED, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await admin.elect_leaders(unclean=True) == {}
        assert await admin.alter_partition_reassignments({T0: [2]}) == {T0: None}
        while await admin.list_partition_reassignments([T0]):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await admin.wait_until(lambda metadata: metadata.topics["t"].partitions[0].replicas == (2,), "t")
        (refused,) = (await admin.alter_partition_reassignments({T0: None})).values()
        assert refused is not None and refused.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_log_dirs_are_described_and_replicas_moved_between_them() -> None:
    cluster = Cluster(1)
    cluster._data.files[1] = {"/a": MemoryFiles(), "/b": MemoryFiles()}
    async with asyncio.timeout(60), cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        home, other = sorted(await admin.describe_log_dirs(1), key=lambda one: T0 not in one.replicas)
        outcome = await admin.alter_replica_log_dirs(1, {T0: other.path, TopicPartition("no", 0): other.path})
        codes = [error and error.code for error in outcome.values()]
        assert codes == [None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        while True:
            found = {one.path: one.replicas.get(T0) for one in await admin.describe_log_dirs(1)}
            moved = found[other.path]
            if found[home.path] is None and moved is not None and not moved[0].is_future:
                break
            await asyncio.sleep(0.01)
