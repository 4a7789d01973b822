"""Stock consumers with manual assignment (librdkafka, aiokafka): kept and missing guarantees.

They ask no coordinator, so nobody can hold a partition back from them, by whatever policy. What is left to them is what
a Kafka without lineages gives: each partition in its order, and nothing lost. And they spoil nothing for others: one
that borrows the name of a living group cannot commit in it, so it opens none of that group's gates.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from anabranch import Admin, Producer
from anabranch.clients.group_admin import describe_group
from tests.clients.partitioners.load import resize

KEYS, EACH = 20, 10
PATIENCE_S = 120.0
QUICK = {"group.consumer.heartbeat.interval.ms": 100, "group.consumer.min.heartbeat.interval.ms": 100}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {"heartbeat.interval.ms": 100, "topic.metadata.refresh.interval.ms": 200},
    "consumer": {"group.protocol": "consumer"},
}

pytestmark = [pytest.mark.interop, pytest.mark.anabranch(brokers=1, kafka="4.1", config=QUICK)]


class Handed(NamedTuple):
    """One delivery."""

    partition: int
    key: bytes
    sequence: int


Read = Callable[[str, str, Sequence[Sequence[int]], int], list[Handed]]
"""Servers, topic, what to assign first, then, and so on, and how many records to wait for."""


def librdkafka(servers: str, topic: str, turns: Sequence[Sequence[int]], count: int) -> list[Handed]:
    """Assign the partitions of each turn when all that was assigned before is read to its end."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "nobody", "enable.partition.eof": True})
    handed: list[Handed] = []
    deadline_s = time.monotonic() + PATIENCE_S
    try:
        for turn in turns:
            consumer.incremental_assign([TopicPartition(topic, index, 0) for index in turn])
            unread = set(turn)
            while unread and time.monotonic() < deadline_s:
                record = consumer.poll(0.1)
                if record is None:
                    continue
                error = record.error()
                if error is None:
                    handed.append(Handed(record.partition(), record.key(), int(record.value())))  # type: ignore[arg-type]
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(record.partition())
    finally:
        consumer.close()
    assert len(handed) == count
    return handed


def aiokafka(servers: str, topic: str, turns: Sequence[Sequence[int]], count: int) -> list[Handed]:
    """The same."""

    async def read() -> list[Handed]:
        handed: list[Handed] = []
        async with (
            asyncio.timeout(PATIENCE_S),
            AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
        ):
            for turn in turns:
                mine = [AioPartition(topic, index) for index in turn]
                consumer.assign(mine)  # in place of those before, which are read
                ends = await consumer.end_offsets(mine)
                while any([await consumer.position(one) < ends[one] for one in mine]):
                    for records in (await consumer.getmany(timeout_ms=100)).values():
                        handed += [Handed(one.partition, one.key, int(one.value)) for one in records]
        return handed

    handed = asyncio.run(read())
    assert len(handed) == count
    return handed


each_client = pytest.mark.parametrize("read", [librdkafka, aiokafka])


async def send(servers: str, topic: str, first: int) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        for sequence, key in itertools.product(range(first, first + EACH), range(KEYS)):
            await producer.send(topic, b"%d" % sequence, b"key-%d" % key)
        await producer.flush()


def out_of_order(handed: Iterable[Handed], where: Callable[[Handed], Any]) -> int:
    """How many came after a younger one of theirs in the same place."""
    youngest: dict[Any, int] = defaultdict(lambda: -1)
    found = 0
    for one in handed:
        found += one.sequence < youngest[where(one)]
        youngest[where(one)] = max(youngest[where(one)], one.sequence)
    return found


def only_partitions_are_in_order(handed: list[Handed]) -> None:
    """Nothing is lost, each partition has its order, and the keys have not."""
    assert sorted((one.key, one.sequence) for one in handed) == sorted(
        (b"key-%d" % key, sequence) for key in range(KEYS) for sequence in range(2 * EACH)
    )
    assert out_of_order(handed, lambda one: (one.partition, one.key)) == 0
    assert out_of_order(handed, lambda one: one.key) > 0


@each_client
def test_partitions_keep_order_through_growth_and_keys_do_not(anabranch: Any, read: Read) -> None:
    servers, topic = anabranch.bootstrap_servers, anabranch.topic("orders", partitions=1)
    asyncio.run(send(servers, topic, 0))
    asyncio.run(resize(servers, topic, 2))
    asyncio.run(send(servers, topic, EACH))
    only_partitions_are_in_order(read(servers, topic, [[1], [0]], 2 * KEYS * EACH))


@each_client
def test_partitions_keep_order_through_shrinking_and_keys_do_not(anabranch: Any, read: Read) -> None:
    """No policy prevents the shrink: such consumers are unknown to the broker."""
    servers, topic = anabranch.bootstrap_servers, anabranch.topic("orders", partitions=2)
    asyncio.run(send(servers, topic, 0))
    asyncio.run(resize(servers, topic, 1))
    asyncio.run(send(servers, topic, EACH))
    only_partitions_are_in_order(read(servers, topic, [[0], [1]], 2 * KEYS * EACH))


def commit_for(servers: str, group: str, place: TopicPartition) -> None:
    """Commit in the name of a group, without being one of it."""
    stranger = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        stranger.assign([TopicPartition(place.topic, place.partition, 0)])
        stranger.commit(offsets=[place], asynchronous=False)
    finally:
        stranger.close()


async def withheld(servers: str, group: str) -> set[int]:
    async with Admin(servers) as admin:
        return {one.partition for one in (await describe_group(admin.network, group)).withheld}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_assigned_consumer_with_the_group_id_opens_no_gates(anabranch: Any, protocol: str) -> None:
    servers, topic = anabranch.bootstrap_servers, anabranch.topic("orders", partitions=1)
    asyncio.run(send(servers, topic, 0))
    settings = {"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    member = Consumer({**settings, **PROTOCOLS[protocol], "enable.auto.commit": False})
    member.subscribe([topic])
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        first: Any = None
        while first is None and time.monotonic() < deadline_s:
            first = member.poll(0.1)
        member.commit(first, asynchronous=False)
        asyncio.run(resize(servers, topic, 2))
        while asyncio.run(withheld(servers, "readers")) != {1} and time.monotonic() < deadline_s:
            member.poll(0.1)
        end = TopicPartition(topic, 0, KEYS * EACH)
        with pytest.raises(KafkaException) as refused:
            commit_for(servers, "readers", end)
        assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
        assert asyncio.run(withheld(servers, "readers")) == {1}
        member.commit(offsets=[end], asynchronous=False)  # the same by one of them
        while {one.partition for one in member.assignment()} != {0, 1} and time.monotonic() < deadline_s:
            member.poll(0.1)
        assert {one.partition for one in member.assignment()} == {0, 1}
        assert not asyncio.run(withheld(servers, "readers"))
    finally:
        member.close()
