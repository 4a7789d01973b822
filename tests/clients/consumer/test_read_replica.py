"""A consumer with a rack reads from a follower there, and loses nothing when that fails.

Method: brokers in three racks; whom it asks is where its long poll is parked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.broker.replication.replica_selector import RACK_AWARE
from anabranch.clients.consumer.read_replica import ReadReplicas
from anabranch.clients.metadata import Node, Partition
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.topic_partition import TopicPartition

WHERE = TopicPartition("t", 0)
NODES = {node_id: Node(node_id, "127.0.0.1", 9090 + node_id) for node_id in (1, 2)}
IN_SYNC = Partition(0, 1, 3, (1, 2), (1, 2), ErrorCode.NONE)
FALLEN_BEHIND = Partition(0, 1, 3, (1, 2), (1,), ErrorCode.NONE)


def test_preferred_replica_is_used_while_in_sync_until_lease_ends() -> None:
    replicas = ReadReplicas(lease_s=300)
    assert replicas.node_for(WHERE, IN_SYNC, NODES, 0) == 1
    replicas.prefer(WHERE, 2, 0)
    assert replicas.node_for(WHERE, IN_SYNC, NODES, 299) == 2
    assert replicas.node_for(WHERE, IN_SYNC, NODES, 300) == 1, "the leader is asked again"
    replicas.prefer(WHERE, 2, 300)
    assert replicas.node_for(WHERE, FALLEN_BEHIND, NODES, 301) == 1
    replicas.prefer(WHERE, 2, 302)
    assert replicas.node_for(WHERE, IN_SYNC, {1: NODES[1]}, 303) == 1, "nobody knows where it is"
    replicas.prefer(WHERE, 2, 304)
    assert replicas.forget(WHERE) and not replicas.forget(WHERE)
    assert replicas.node_for(WHERE, IN_SYNC, NODES, 305) == 1


async def test_records_come_in_order_from_rack_of_consumer_through_resize_and_crash() -> None:
    properties = {"replica.selector.class": RACK_AWARE, "replica.fetch.wait.max.ms": "20"}
    async with (
        Cluster(3, racks=("a", "b", "c"), properties=properties, seed=3) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        await admin.create_topics([NewTopic(name="t", assignments={0: [1, 2]})])
        await admin.wait_for_topic("t", replicas=2)
        consumer = Consumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, client_rack="b", auto_offset_reset="earliest"
        )
        async with consumer:
            await send(producer, 0)
            assert await read(consumer, 20) == numbered(0)
            await until(lambda: fetching_nodes(consumer) == {2})
            await send(producer, 20)
            assert await read(consumer, 20) == numbered(20), "from the follower"
            await until(lambda: fetching_nodes(consumer) == {2})
            await admin.create_partitions("t", 2)
            await send(producer, 40)
            assert await read(consumer, 20) == numbered(40), "the child's come after the parent's"
            await cluster.crash_broker(2)
            await send(producer, 60)
            assert await read(consumer, 20) == numbered(60), "from leaders again"


def numbered(first: int) -> dict[bytes, list[int]]:
    """What should be read of twenty records, key by key."""
    return {b"k%d" % key: [first + key, first + key + 5, first + key + 10, first + key + 15] for key in range(5)}


def fetching_nodes(consumer: Consumer) -> set[int]:
    """The nodes that hold a fetch of this consumer."""
    return {node_id for node_id, _ in consumer._fetcher._in_flight}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 -- what is under way has no event
            await asyncio.sleep(0.005)


async def send(producer: Producer, first: int) -> None:
    for number in range(first, first + 20):
        await producer.send_and_wait("t", b"%d" % number, b"k%d" % (number % 5))


async def read(consumer: Consumer, count: int) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    async with asyncio.timeout(60):
        for _ in range(count):
            record = await consumer.getone()
            found.setdefault(record.key or b"", []).append(int(record.value or b""))
    return dict(sorted(found.items()))
