"""A record is appended once its topic is usable and the buffer has space; until then `send` waits.

Method: a real cluster in this process.
"""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Producer
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.consumer.groups import cluster_and_admin, make_topic


async def test_partition_that_was_added_since_the_last_metadata_can_be_chosen() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1, "t", 1)
        async with Producer(cluster.bootstrap_servers) as producer:
            assert (await producer.send_and_wait("t", b"v", partition=0)).partition == 0
            await admin.create_partitions("t", 2)
            await admin.wait_until(lambda metadata: len(metadata.topics["t"].partitions) == 2, "t")
            assert (await producer.send_and_wait("t", b"v", partition=1)).partition == 1
            with pytest.raises(KafkaError, match="never existed"):
                await producer.send("t", b"v", partition=2)


async def test_topic_is_created_on_first_use() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, _), Producer(cluster.bootstrap_servers) as producer:
        assert (await producer.send_and_wait("new", b"v")).offset == 0


async def test_sending_waits_while_the_buffer_is_full() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1, "t", 1)
        async with Producer(cluster.bootstrap_servers, buffer_bytes=5_000, linger_ms=1000) as producer:
            sends = [producer.send("t", b"x" * 500) for _ in range(100)]
            receipts = await asyncio.gather(*sends)
            assert any(receipt.done() for receipt in receipts), "nobody waited"
            await producer.flush()
            offsets = [receipt.result().offset for receipt in receipts]
            assert offsets == list(range(100)), "first come, first served"


async def test_send_fails_after_max_block_ms() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1, "t", 1)
        async with Producer(cluster.bootstrap_servers, buffer_bytes=100) as producer:
            await producer.send_and_wait("t", b"x")
            producer._appender.max_block_ms = 200  # it had what time it needed until here
            await cluster.stop_broker(1)
            receipt = await producer.send("t", b"x" * 200)
            for name in ("t", "unknown"):
                with pytest.raises(KafkaError, match="within 200 ms") as blocked:
                    await producer.send(name, b"x")
                assert blocked.value.code == ErrorCode.REQUEST_TIMED_OUT
            await cluster.start_broker(1)
            assert (await receipt).offset == 1


async def test_topic_refused_for_too_few_brokers_is_usable_once_they_return() -> None:
    """INVALID_REPLICATION_FACTOR of the first lookup is not cached."""
    async with cluster_and_admin() as (cluster, _):
        for node_id in (2, 3):
            await cluster.stop_broker(node_id)
        async with Producer(cluster.bootstrap_servers) as producer:
            refused = asyncio.Event()
            producer._network.on_metadata(lambda metadata: refused.set() if "new" in metadata.errors else None)
            sending = asyncio.ensure_future(producer.send_and_wait("new", b"x", b"k"))
            await refused.wait()
            assert producer.metadata.errors == {"new": ErrorCode.INVALID_REPLICATION_FACTOR}
            producer._appender.max_block_ms = 100
            with pytest.raises(KafkaError, match="within 100 ms: the cluster answers INVALID_REPLICATION_FACTOR for"):
                await producer.send("new", b"y")
            assert not sending.done()
            for node_id in (2, 3):
                await cluster.start_broker(node_id)
            assert (await sending).offset == 0


async def test_impossible_topic_is_refused_at_once() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, _), Producer(cluster.bootstrap_servers) as producer:
        for _ in range(2):
            with pytest.raises(KafkaError) as refused:
                await producer.send("no/topic", b"x")
            assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
