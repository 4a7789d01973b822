"""A partition without followers does not block records of other partitions, and does not fill the buffer with
`refuse_below_min_insync_replicas`.

Method: a real cluster; the follower of partition 0 is stopped, min.insync.replicas is 2. The same without the option
shows what it is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.clients.producer import sender
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import murmur2

KEYS = {index: next(b"key-%d" % n for n in range(100) if murmur2(b"key-%d" % n) % 2 == index) for index in (0, 1)}
"""A key of partition 0, whose follower stops, and one of partition 1, which keeps its own."""


@asynccontextmanager
async def starved_partition(**settings: Any) -> AsyncIterator[tuple[Cluster, Admin, Producer]]:
    async with (
        asyncio.timeout(60),
        Cluster(3, seed=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Producer(
            cluster.bootstrap_servers,
            buffer_bytes=20_000,
            **settings,
        ) as producer,
    ):
        topic = NewTopic(name="t", assignments={0: [1, 2], 1: [1, 3]}, configs={"min.insync.replicas": "2"})
        await admin.create_topics([topic])
        await admin.wait_for_topic("t", replicas=2)
        for key in KEYS.values():
            await producer.send_and_wait("t", b"x", key)
        await cluster.stop_broker(2)
        await admin.wait_until(lambda metadata: metadata.topics["t"].partitions[0].isr == (1,), "t")
        yield cluster, admin, producer


async def until_known(producer: Producer) -> None:
    """The first refusal of the leader makes the producer look."""
    with pytest.raises(KafkaError) as refused:
        while True:
            await producer.send("t", b"x", KEYS[0])
            await asyncio.sleep(0.01)
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


async def sixty_without_a_key(producer: Producer, size_bytes: int) -> set[int]:
    """Where sixty records are stored, all of them."""
    receipts = [await producer.send("t", b"x" * size_bytes) for _ in range(60)]
    return {stored.partition for stored in await asyncio.gather(*receipts)}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer looks after its starved partitions more often than every 5 seconds."""
    monkeypatch.setattr(sender, "STARVED_REFRESH_S", 0.3)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("size_bytes", [10, 1000], ids=["one batch", "many batches"])
async def test_keyless_records_go_to_ready_partitions(size_bytes: int) -> None:
    """Whether the producer starts before or after the follower stops."""
    async with starved_partition(delivery_timeout_ms=10_000, batch_bytes=2000) as (cluster, admin, before):
        assert before.metadata.topics["t"].in_sync_enough(0), "nobody has told it"
        before._accumulator._stickies["t"]._current = 0
        assert await sixty_without_a_key(before, size_bytes) == {1}
        async with Producer(cluster.bootstrap_servers, delivery_timeout_ms=10_000, batch_bytes=2000) as after:
            assert await sixty_without_a_key(after, size_bytes) == {1}
            known = after._accumulator.topics["t"]
            assert (known.live, known.available, known.ready) == ((0, 1), (0, 1), (1,))
            # When the follower is back, so is the partition, without anything that would tell the producer.
            await cluster.start_broker(2)
            await admin.wait_for_topic("t", replicas=2)
            while await sixty_without_a_key(after, 1000) != {0, 1}:
                pass


@pytest.mark.usefixtures("soon")
async def test_keyless_records_wait_for_a_leader_if_no_partition_is_ready() -> None:
    async with starved_partition() as (cluster, admin, _):
        await cluster.stop_broker(3)
        await admin.wait_until(lambda metadata: metadata.topics["t"].partitions[1].isr == (1,), "t")
        async with Producer(cluster.bootstrap_servers) as other:
            waiting = [await other.send("t", b"x" * 1000) for _ in range(20)]
            known = other._accumulator.topics["t"]
            assert (known.available, known.ready) == ((0, 1), ())
            await cluster.start_broker(2)
            assert len(await asyncio.gather(*waiting)) == 20
        await cluster.start_broker(3)


@pytest.mark.parametrize("acks", [0, 1])
async def test_without_acks_all_partition_with_leader_is_ready(acks: int) -> None:
    async with (
        starved_partition() as (cluster, _, _),
        Producer(cluster.bootstrap_servers, acks=acks, batch_bytes=2000) as other,
    ):
        assert await sixty_without_a_key(other, 1000) == {0, 1}
        assert other._accumulator.topics["t"].ready == (0, 1)


async def test_refusing_starved_partitions_keeps_buffer_bounded() -> None:
    async with starved_partition(refuse_below_min_insync_replicas=True) as (cluster, _, producer):
        await until_known(producer)
        buffered = producer._accumulator.buffered_bytes
        for _ in range(200):
            with pytest.raises(KafkaError, match=r"t: fewer in-sync replicas .* in partition 0") as refused:
                producer.send("t", b"x" * 1000, KEYS[0]).send(None)  # refused at once: it never waits for anything
            assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert producer._accumulator.buffered_bytes == buffered, "and not kept"
        # Everybody else is served, and records without a key know where to go.
        assert (await producer.send_and_wait("t", b"x", KEYS[1])).partition == 1
        homes = {(await producer.send_and_wait("t", b"x" * 1000)).partition for _ in range(20)}
        assert homes == {1}
        with pytest.raises(KafkaError, match="partition 0"):
            await producer.send("t", b"x", partition=0)
        # When the follower is back, so is the partition, and nothing has to be restarted for it.
        await cluster.start_broker(2)
        while True:
            try:
                receipt = await producer.send("t", b"back", KEYS[0])
            except KafkaError as error:
                assert error.code == ErrorCode.NOT_ENOUGH_REPLICAS
                await asyncio.sleep(0.05)
            else:
                assert (await receipt).partition == 0
                break


@pytest.mark.usefixtures("soon")
async def test_without_refusal_buffer_fills_and_blocks_every_send() -> None:
    async with starved_partition() as (cluster, _, producer):
        producer._appender.max_block_ms = 300
        receipts = []
        with pytest.raises(KafkaError, match="room in the buffer") as blocked:
            for _ in range(200):
                receipts.append(await producer.send("t", b"x" * 1000, KEYS[0]))
        assert blocked.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert producer._accumulator.full
        with pytest.raises(KafkaError, match="room in the buffer"):
            await producer.send("t", b"x", KEYS[1])
        await cluster.start_broker(2)
        await asyncio.gather(*receipts)


async def test_keyless_records_are_refused_if_no_partition_is_ready() -> None:
    async with starved_partition(refuse_below_min_insync_replicas=True) as (cluster, admin, producer):
        await until_known(producer)
        await cluster.stop_broker(3)
        await admin.wait_until(lambda metadata: metadata.topics["t"].partitions[1].isr == (1,), "t")
        with pytest.raises(KafkaError, match="every partition") as refused:
            while True:
                await producer.send("t", b"x")
                await asyncio.sleep(0.01)
        assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
        await cluster.start_broker(2)
        await cluster.start_broker(3)


@pytest.mark.parametrize("acks", [0, 1])
async def test_without_acks_all_starved_partition_accepts_records(acks: int) -> None:
    async with starved_partition(refuse_below_min_insync_replicas=True, acks=acks) as (_, _, producer):
        homes = {(await producer.send_and_wait("t", b"x" * 1000, key)).partition for key in KEYS.values()}
        assert homes == {0, 1}


async def test_keyless_records_avoid_partitions_without_leader() -> None:
    async with (
        asyncio.timeout(60),
        Cluster(2, seed=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers, delivery_timeout_ms=60_000) as producer,
    ):
        await admin.create_topics([NewTopic(name="t", assignments={0: [1], 1: [2]})])
        await admin.wait_for_topic("t")
        await producer.send_and_wait("t", b"x")
        await cluster.stop_broker(2)
        await admin.wait_until(lambda metadata: metadata.leader("t", 1) == -1, "t")
        while producer.metadata.leader("t", 1) != -1:
            producer._network.request_refresh()
            await asyncio.sleep(0.01)
        receipts = [await producer.send("t", b"x" * 20_000) for _ in range(20)]
        assert {stored.partition for stored in await asyncio.gather(*receipts)} == {0}
