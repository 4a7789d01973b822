"""A new leader that a member of its ISR can still replace must not redirect a producer.

A record is on the leader and on one follower when the leader dies. The other follower leads next, without the record; a
resize seals the partition. Were it to refuse the repeated batch for good, the producer would store the record where its
key belongs now, and when the first follower leads after all, the record would be there twice.
"""

from __future__ import annotations

import asyncio
import dataclasses

from anabranch import Admin, NewTopic, Producer
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.record import iter_records
from tests.sim import resize_probes
from tests.sim.cluster import SimCluster
from tests.sim.loop import Process

KEY = next(b"k%d" % number for number in range(9) if murmur2(b"k%d" % number) % 2 == 1)
FIRST, SECOND, THIRD, ELSEWHERE = 1, 2, 3, 4
"""Who leads the partition that is merged away, one after another; and who leads the other partition throughout."""


async def story(cluster: SimCluster) -> tuple[RecordMetadata, list[bytes]]:
    await cluster.start()
    client = Process("client")
    receipt = await cluster.loop.spawn(client, _begin(cluster))
    place = ("t", 1)
    await cluster.until(
        lambda: _end(cluster, THIRD) == 2 and _end(cluster, FIRST) == 2, 5, "one follower has the record"
    )
    assert _end(cluster, SECOND) == 1
    cluster.freeze(THIRD)
    cluster.crash(FIRST)
    cluster.expire_session(FIRST)
    cluster.network.heal("node-1", "node-2")
    await cluster.until(lambda: cluster.leader(*place) == SECOND, 5, "the other follower leads")
    await cluster.loop.spawn(client, _merge(cluster))
    refused = cluster.history.resizes.refused
    await cluster.until(lambda: bool(refused), 0.9, "the producer is refused")
    await asyncio.sleep(0.1)  # much longer, and the frozen one would leave the ISR
    cluster.crash(SECOND)
    cluster.expire_session(SECOND)
    cluster.thaw(THIRD)
    await cluster.until(lambda: cluster.leader(*place) == THIRD, 5, "the first follower leads")
    for node in (FIRST, SECOND):
        cluster.boot(node)
    stored = await cluster.loop.spawn(client, _wait(receipt))
    await cluster.until(cluster.in_sync, 40, "all replicas are in sync")
    return stored, [value for index in (0, 1) for value in _values(cluster, index)]


async def _begin(cluster: SimCluster) -> asyncio.Future[RecordMetadata]:
    async with Admin(cluster.bootstrap, rng=cluster.rng("admin")) as admin:
        replicas = {0: [ELSEWHERE, THIRD, SECOND], 1: [FIRST, SECOND, THIRD]}
        configs = {"reshard.legacy.consumers.shrink": "warn"}  # or a frozen node keeps the topic from shrinking
        await admin.create_topics([NewTopic(name="t", assignments=replicas, configs=configs)])
        await admin.wait_for_topic("t", replicas=3)
    producer = Producer(
        cluster.bootstrap, request_timeout_ms=150, delivery_timeout_ms=60000, rng=cluster.rng("producer")
    )
    await producer.start()
    await (await producer.send("t", b"before", KEY))
    await asyncio.sleep(0.3)
    cluster.network.block("node-1", "node-2")
    return await producer.send("t", b"once", KEY)


async def _merge(cluster: SimCluster) -> None:
    async with Admin(cluster.bootstrap, request_timeout_ms=2000, rng=cluster.rng("merge")) as admin:
        await admin.create_partitions("t", 1, allow_shrink=True)


async def _wait(receipt: asyncio.Future[RecordMetadata]) -> RecordMetadata:
    return await receipt


def _end(cluster: SimCluster, node: int) -> int:
    replica = cluster.replica(node, "t", 1)
    return -1 if replica is None else replica.log.log_end_offset


def _values(cluster: SimCluster, index: int) -> list[bytes]:
    replica = cluster.replica(cluster.leader("t", index), "t", index)
    assert replica is not None
    log, values = replica.log, []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = bytes(log.read(offset, 1 << 20, limit_offset=log.log_end_offset))
        for start, header in iter_batches(data):
            values += [bytes(one.value or b"") for one in iter_records(data[start : start + header.size_bytes])]
            offset = header.next_offset
    return values


def test_leader_that_may_be_outdated_refuses_nothing_permanently() -> None:
    cluster = SimCluster("challenged", brokers=4, spares=1)
    for machine in cluster.brokers:
        machine.settings = dataclasses.replace(machine.settings, roles=("broker",))
    with resize_probes.watching(cluster):
        stored, values = cluster.loop.run(story(cluster))
    assert cluster.history.failures == []
    assert sorted(values) == [b"before", b"once"]
    assert stored.partition == 1, "it was stored before the partition was merged away"
