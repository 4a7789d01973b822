"""With keys misplaced by stock producers, a resized application counts correctly, or ends with a reason.

Method: a stock producer (aiokafka) and one of ours write to topics that grow while an application counts their keys.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import PolicyViolationError

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.config import AT_LEAST_ONCE, EXACTLY_ONCE
from anabranch.clients.streams.failures import SKIP, RecordFailed
from anabranch.clients.streams.misplaced_keys import KeyPlaces
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.topology import Topology
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import Lineage
from tests.clients.streams.world import PARTITIONS, World, counts, streams_world, until

KEYS = [b"key-%d" % number for number in range(40)]
GROWN = Lineage(1, [(0, PARTITIONS), (1, 6)])


def modulo(count: int) -> Callable[[bytes], int]:
    """As Java's producer places keys."""
    return lambda key: murmur2(key) % count


def test_key_belongs_to_partition_of_its_key_epoch_by_linear_hashing() -> None:
    places = KeyPlaces(GROWN)
    (key, *_) = [one for one in KEYS if GROWN.until(0).address(murmur2(one)) == 0 and GROWN.address(murmur2(one)) == 4]

    def place(partition: int, generation: int, key: bytes | None = key) -> str:
        record = ConsumerRecord("in", partition, 7, 0, key, b"", (), generation)
        return str(places.check_place(record) or "")

    assert place(0, 0) == ""
    assert place(4, 1) == ""
    assert "belongs to in-4 of 6 partitions" in place(0, 1)
    assert "belongs to in-0 of 4 partitions" in place(3, 0)
    assert place(3, 1, None) == "", "a record without a key has no state"
    assert KeyPlaces(GROWN).resized
    assert not KeyPlaces(GROWN.until(0)).resized


@asynccontextmanager
async def stock_producer(world: World) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=world.cluster.bootstrap_servers, metadata_max_age_ms=100)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def send(world: World, stock: AIOKafkaProducer, place: Callable[[bytes], int]) -> None:
    """One record of each key from the stock producer."""
    await stock.client.force_metadata_update()
    for key in KEYS:
        world.expected[key] += 1
        await stock.send_and_wait("in", b"", key, partition=place(key))


async def grow(world: World, count: int) -> None:
    await world.admin.create_partitions("in", count)
    await world.admin.wait_until(lambda known: len(known.topics["in"].live) == count, "in")


async def order(world: World) -> None:
    """One record of each key from a producer that sends generations: from the first on the topic is ordered."""
    for key in KEYS:
        world.expected[key] += 1
        await world.producer.send("in", b"", key)
    await world.producer.flush()


async def ended(one: Streams, *kinds: type[Exception]) -> str:
    with pytest.raises(kinds) as caught:
        await one.wait_failed()
    return str(caught.value)


async def test_topic_doubled_by_stock_producers_is_counted_correctly_when_ordered(tmp_path: Path) -> None:
    async with streams_world(tmp_path) as world, stock_producer(world) as stock, world.instance(counts()) as one:
        await send(world, stock, modulo(4))
        await world.counted(one)
        await grow(world, 8)
        await until(lambda: one.moves.deliveries == 4, "state follows its keys")
        await send(world, stock, modulo(8))
        await world.counted(one)
        await order(world)
        await world.counted(one)
        with pytest.raises(PolicyViolationError):
            await stock.send_and_wait("in", b"", KEYS[0])


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
@pytest.mark.parametrize("begun", ["before", "after"])
async def test_topic_grown_oddly_by_stock_producers_fails_at_first_misplaced_key(
    guarantee: str, begun: str, tmp_path: Path
) -> None:
    async def whole(one: Streams) -> None:
        error = await ended(one, RecordFailed)
        assert "cannot be processed: MisplacedKey: its key belongs to in-" in error
        assert "reshard.legacy.producers=refuse" in error
        assert "processing_handler=skip" in error

    async with streams_world(tmp_path) as world, stock_producer(world) as stock:
        settings: dict[str, Any] = {"processing_guarantee": guarantee}
        await send(world, stock, modulo(4))
        if begun == "before":
            async with world.instance(counts(), **settings) as one:
                await world.counted(one)
                await grow(world, 6)
                await send(world, stock, modulo(6))
                await whole(one)
            await order(world)
        else:
            await grow(world, 6)
            await send(world, stock, modulo(6))
            await order(world)
        async with world.instance(counts(), **settings) as one:
            await whole(one)


async def test_skipping_misplaced_records_counts_the_others_correctly(tmp_path: Path) -> None:
    async with (
        streams_world(tmp_path) as world,
        stock_producer(world) as stock,
        world.instance(counts(), processing_handler=SKIP) as one,
    ):
        await send(world, stock, modulo(4))
        await world.counted(one)
        await grow(world, 6)
        await send(world, stock, modulo(6))
        await order(world)
        lost = [key for key in KEYS if murmur2(key) % 6 != GROWN.address(murmur2(key))]
        world.expected.subtract(lost)
        await world.counted(one)
        assert one.dropped == len(lost) > 0


async def test_state_of_keys_placed_by_other_hash_ends_application_on_resize(
    tmp_path: Path,
) -> None:
    async with streams_world(tmp_path) as world, stock_producer(world) as stock:
        async with world.instance(counts()) as one:
            await send(world, stock, lambda key: len(key) % PARTITIONS)
            await world.counted(one)  # as in Kafka: the records of a key lie in one partition, whichever it is
        async with world.instance(counts()) as one:
            await grow(world, 6)
            await order(world)
            error = await ended(one, StreamsError)
            assert "has state of keys of other partitions" in error
            assert "at offset" in error
            assert one.moves.keys == 0


async def test_repartitioned_stream_counts_correctly_for_any_key_placement(tmp_path: Path) -> None:
    topology = Topology()
    topology.stream("in").repartition("again").count("counts").to("out")
    async with streams_world(tmp_path) as world, stock_producer(world) as stock, world.instance(topology) as one:
        await send(world, stock, lambda key: len(key) % PARTITIONS)
        await grow(world, 6)
        await send(world, stock, modulo(6))
        await order(world)
        await world.counted(one)
