"""aiokafka with lineage partitioning, on a topic that is resized 4 -> 6 -> 3."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import OutOfOrderSequenceNumber, PolicyViolationError, UnknownTopicOrPartitionError

from anabranch.clients.partitioners.aio import LineagePartitioner
from anabranch.clients.partitioners.placement import Placement
from tests.clients.partitioners.load import COUNTS, KEYS, Load, OneByOne, create, judged, resize

pytestmark = [pytest.mark.interop, pytest.mark.anabranch(brokers=3)]


class Sender(NamedTuple):
    """A producer and its partitioner."""

    servers: str
    topic: str
    producer: AIOKafkaProducer
    partitioner: LineagePartitioner


@contextlib.asynccontextmanager
async def sender(anabranch: Any, topic: str | None = None) -> AsyncIterator[Sender]:
    servers = anabranch.bootstrap_servers
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        async with AIOKafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=1) as producer:
            yield Sender(servers, topic or await create(servers), producer, LineagePartitioner(producer, admin))
    finally:
        await admin.close()


async def outcome(sent: asyncio.Future[Any]) -> str:
    try:
        await sent
    except PolicyViolationError as error:
        return type(error).__name__
    return ""


async def test_no_record_is_misplaced_and_every_refused_record_is_reported(anabranch: Any) -> None:
    """Sent at full speed, without waiting for earlier records."""
    load = Load()
    async with sender(anabranch) as one:

        async def send(count: int) -> None:
            rows = list(load.rows(count))
            sent = [await one.partitioner.send(one.topic, value, key) for key, value in rows]
            for (_, value), what in zip(rows, await asyncio.gather(*map(outcome, sent)), strict=True):
                load.outcomes[value] = what

        for count in COUNTS:
            resizing = asyncio.create_task(resize(one.servers, one.topic, count)) if count != COUNTS[0] else None
            while resizing is not None and not resizing.done():
                await send(30)
            await send(200)
            before = len(load.refused)
            await send(100)
            assert len(load.refused) == before, "what was refused has taught it"
        assert load.refused, "the topic was resized under it"
        await judged(one.servers, one.topic, load.stored)


async def test_one_record_per_key_in_flight_keeps_order(anabranch: Any) -> None:
    load = Load()
    queue = OneByOne(load)
    async with sender(anabranch) as one:

        async def send(key: bytes, value: bytes) -> None:
            what = await outcome(await one.partitioner.send(one.topic, value, key))
            load.outcomes[value] = what
            queue.settled(key, bool(what))

        async def work() -> None:
            await asyncio.gather(*(send(key, value) for key, value in queue.due()))

        for count in COUNTS:
            resizing = asyncio.create_task(resize(one.servers, one.topic, count)) if count != COUNTS[0] else None
            queue.add(240)
            while not queue.done or (resizing is not None and not resizing.done()):
                if queue.done:
                    queue.add(24)
                await work()
            queue.add(240)
            while not queue.done:
                await work()
        assert queue.refusals
        assert not load.refused, "sent again until it is stored"
        by_key = await judged(one.servers, one.topic, load.stored)
        assert all(values == sorted(values) for values in by_key.values())


async def test_idempotent_aiokafka_producer_fails_after_refusal(anabranch: Any) -> None:
    """If this fails, aiokafka was fixed, and the warning can be removed."""
    servers = anabranch.bootstrap_servers
    topic = await create(servers)
    before, after = Placement(1, COUNTS[0]), Placement(1, COUNTS[1])
    moves = next(key for key in KEYS if before.partition(key) != after.partition(key))
    place = before.partition(moves)
    stays = next(key for key in KEYS if before.partition(key) == after.partition(key) == place)
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        await producer.send_and_wait(topic, b"before", stays, partition=place)
        await resize(servers, topic, COUNTS[1])
        with pytest.raises(PolicyViolationError):
            await producer.send_and_wait(topic, b"refused", moves, partition=place)
        with pytest.raises(OutOfOrderSequenceNumber):
            await producer.send_and_wait(topic, b"right", stays, partition=place)


async def test_unknown_topic_is_an_error(anabranch: Any) -> None:
    async with sender(anabranch, "nowhere") as one:
        with pytest.raises(UnknownTopicOrPartitionError):
            await one.partitioner.partition("nowhere", b"key")
