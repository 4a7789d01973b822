"""The producer's guarantees on a real cluster of three brokers, with resizes and failures.

Method: the cluster runs in this process and talks TCP; logs are dumped and judged below any consumer.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.cluster.in_process import Cluster
from anabranch.controller.settings import ControllerSettings
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.hashing import murmur2
from tests.clients.cluster_log import disorders, dump
from tests.clients.consumer.groups import make_topic


@asynccontextmanager
async def cluster_and_admin(*, brokers: int = 3, timeout_s: float = 120) -> AsyncIterator[tuple[Cluster, Admin]]:
    async with (
        asyncio.timeout(timeout_s),
        Cluster(brokers=brokers, seed=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        yield cluster, admin


async def judge(admin: Admin, name: str, expected: int) -> None:
    """Judge the whole log. A leader that is new in office learns late how far the log may be shown: wait for that."""
    described = await admin.describe_topic(name)
    assert described.lineage is not None
    records = await dump(admin.network, described)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            while len(records) < expected:
                await asyncio.sleep(0.05)
                records = await dump(admin.network, described)
    assert disorders(described.lineage, records) == []
    assert len(records) == expected


@pytest.mark.parametrize(
    ("acks", "compression"),
    [
        ("all", None),
        ("all", "gzip"),
        ("all", "snappy"),
        ("all", "lz4"),
        ("all", "zstd"),
        (1, None),
        (1, "lz4"),
        (0, None),
    ],
)
async def test_records_are_stored(acks: str | int, compression: str | None) -> None:
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 3, "t", 3)
        async with Producer(cluster.bootstrap_servers, acks=acks, compression_type=compression, audit=True) as producer:
            receipts = [await producer.send("t", b"v" * 100, b"k%d" % (n % 10)) for n in range(500)]
            await producer.flush()
            metadata = [receipt.result() for receipt in receipts]
        if acks != 0:
            assert {(one.partition, one.offset) for one in metadata} == {
                (one.partition, offset)
                for one in metadata
                for offset in range(sum(other.partition == one.partition for other in metadata))
            }
        await admin.wait_until(lambda metadata: True, "t")
        await judge(admin, "t", 500)


async def test_keys_keep_order_through_growing_and_shrinking() -> None:
    """All of R8: 50,000 records while the topic goes 4 -> 6 -> 8 -> 5."""
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 4, "t", 3)
        rng = random.Random(7)
        async with Producer(cluster.bootstrap_servers, audit=True, linger_ms=1, batch_bytes=2000) as producer:
            resizes = asyncio.create_task(resize_one_after_another(admin, producer))
            receipts = []
            sent_after_the_last_resize = 0
            while len(receipts) < 50_000 or sent_after_the_last_resize < 1_000:
                number = len(receipts)
                receipts.append(await producer.send("t", b"%d" % number, b"key-%d" % rng.randrange(200)))
                sent_after_the_last_resize += resizes.done()
                if number % 100 == 0:
                    await asyncio.sleep(0.002)
            await resizes
            await producer.flush()
            assert all(receipt.exception() is None for receipt in receipts)
            assert producer.generation("t") == 3
            assert producer.statistics.switches > 0
        described = await admin.describe_topic("t")
        assert described.lineage is not None
        assert described.lineage.history == ((0, 4), (1, 6), (2, 8), (3, 5))
        await judge(admin, "t", len(receipts))


async def resize_one_after_another(admin: Admin, producer: Producer) -> None:
    for generation, count in enumerate((6, 8, 5), start=1):
        await stored(producer, producer.statistics.records + 5_000)
        await admin.create_partitions("t", count, allow_shrink=True)
        await admin.wait_for_generation("t", generation)


async def stored(producer: Producer, count: int) -> None:
    while producer.statistics.records < count:  # noqa: ASYNC110 -- a counter has no event
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["stop", "crash"])
async def test_stopped_leader_loses_no_record(how: str) -> None:
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 3, "t", 3, min_insync_replicas="2")
        async with Producer(cluster.bootstrap_servers, audit=True, linger_ms=1, batch_bytes=2000) as producer:
            receipts = []
            for number in range(6_000):
                receipts.append(await producer.send("t", b"%d" % number, b"key-%d" % (number % 50)))
                if number == 2_000:
                    await (cluster.stop_broker(2) if how == "stop" else cluster.crash_broker(2))
                if number == 4_000:
                    await cluster.start_broker(2)
                if number % 50 == 0:
                    await asyncio.sleep(0.001)
            await producer.flush()
            assert all(receipt.exception() is None for receipt in receipts)
        await judge(admin, "t", 6_000)


async def test_explicit_partition_is_respected_until_sealed() -> None:
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 2, "t", 3)
        async with Producer(cluster.bootstrap_servers) as producer:
            assert (await producer.send_and_wait("t", b"v", b"k", partition=1)).partition == 1
            assert await producer.partitions_for("t") == (0, 1)
            await admin.create_partitions("t", 1, allow_shrink=True)
            with pytest.raises(KafkaError, match="is retiring") as refused:
                while True:
                    await producer.send_and_wait("t", b"v", b"k", partition=1)
            assert not refused.value.code.retriable
            assert await producer.partitions_for("t") == (0,)
            assert (await producer.send_and_wait("t", b"v", b"k")).partition == 0


async def test_keys_go_to_their_partitions_in_a_topic_that_was_made_again() -> None:
    """The producer was idle meanwhile, and its metadata still describes the deleted topic."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1, "t", 1)
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"v", b"k")
            await admin.delete_topics(["t"])
            await admin.wait_until(lambda metadata: "t" not in metadata.topics, "t")
            while "t" not in admin.network.metadata.topics:
                with contextlib.suppress(KafkaError):  # until the deletion is complete
                    await make_topic(admin, 4, "t", 1)
            stored = await asyncio.gather(*[producer.send_and_wait("t", b"v", b"%d" % n) for n in range(20)])
            assert [one.partition for one in stored] == [murmur2(b"%d" % n) % 4 for n in range(20)]


@pytest.mark.parametrize("doubtful", [False, True], ids=["refused", "outcome unknown"])
async def test_records_for_partition_removed_before_metadata_update_move_if_refused(
    doubtful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused records go to the merge target; possibly stored ones do not, to avoid duplicates."""
    real = ControllerSettings.__init__
    monkeypatch.setattr(
        ControllerSettings,
        "__init__",
        lambda self, *args, **given: real(self, *args, **{**given, "drained_check_interval_ms": 50}),
    )
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2, "t", 1)
        of_the_retiring = next(b"%d" % n for n in range(100) if murmur2(b"%d" % n) % 2 == 1)
        given_up_ms = 1500 if doubtful else 60_000
        async with Producer(cluster.bootstrap_servers, delivery_timeout_ms=given_up_ms) as producer:
            assert await producer.partitions_for("t") == (0, 1)
            await admin.create_partitions("t", 1, allow_shrink=True)
            await admin.wait_until(lambda metadata: sorted(metadata.topics["t"].partitions) == [0], "t")
            assert producer.generation("t") == 0
            receipt = await producer.send("t", b"x", of_the_retiring)
            if not doubtful:
                assert (await receipt).partition == 0
                return
            batch = producer._accumulator.topics["t"].queues[1].waiting[0]
            batch.doubtful = True
            with pytest.raises(KafkaError, match="not stored within"):
                await receipt


async def test_unordered_topics_grow_as_in_kafka() -> None:
    async with cluster_and_admin() as (cluster, admin):
        await make_topic(admin, 4, "t", 3, enable_ordered_delivery="false")
        async with Producer(cluster.bootstrap_servers, partitioner="modulo") as producer:
            before = {n: (await producer.send_and_wait("t", b"v", b"%d" % n)).partition for n in range(40)}
            await admin.create_partitions("t", 6)
            await admin.wait_until(lambda metadata: len(metadata.topics["t"].partitions) == 6, "t")
            while await producer.partitions_for("t") != tuple(range(6)):
                producer._network.request_refresh()
                await asyncio.sleep(0.01)
            after = {n: (await producer.send_and_wait("t", b"v", b"%d" % n)).partition for n in range(40)}
            assert producer.generation("t") == -1
        moved = [n for n in before if before[n] != after[n]]
        assert any(after[n] < 4 for n in moved), "modulo moves keys between partitions that both stay"


async def test_refusals_reach_the_application() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1, "t", 1, max_message_bytes="1000")
        async with Producer(cluster.bootstrap_servers) as producer:
            with pytest.raises(KafkaError) as refused:
                await producer.send_and_wait("t", b"x" * 2000)
            assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
            assert (await producer.send_and_wait("t", b"x")).offset == 0
            with pytest.raises(KafkaError) as unknown:
                await producer.send("bad/name", b"x")
            assert unknown.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
            mistakes: list[dict[str, Any]] = [
                {"value": "text"},
                {"headers": [("name", "text")]},
                {"timestamp_ms": 1.5},
                {"partition": -1},
                {"topic": b"t"},
            ]
            for mistake in mistakes:
                with pytest.raises((TypeError, ValueError)):
                    await producer.send(**{"topic": "t", "value": b"x"} | mistake)
            await producer.send_and_wait("other", b"x")
            assert (await producer.send_and_wait("t", b"x")).offset == 1, "none ends the producer, or its metadata"


async def test_delivery_timeout_names_unavailable_leader() -> None:
    async with cluster_and_admin(brokers=2) as (cluster, admin):
        await admin.create_topics([NewTopic(name="t", assignments={0: [1], 1: [2]})])
        await admin.wait_for_topic("t")
        async with Producer(cluster.bootstrap_servers, delivery_timeout_ms=2000) as producer:
            await producer.send_and_wait("t", b"x", partition=1)
            await cluster.stop_broker(2)
            late = await producer.send("t", b"x", partition=1)
            with pytest.raises(
                KafkaError, match=r"t-1: not stored within 2000 ms: t-1 has no leader \(for \d"
            ) as caught:
                await late
            assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT


async def test_producer_lifecycle() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, _):
        producer = Producer(cluster.bootstrap_servers)
        with pytest.raises(RuntimeError, match="new"):
            await producer.send("t", b"x")
        await producer.start()
        with pytest.raises(RuntimeError, match="once"):
            await producer.start()
        receipt = await producer.send("t", b"x")
        await producer.stop()
        await producer.stop()
        assert receipt.result().offset == 0
        with pytest.raises(RuntimeError, match="stopped"):
            await producer.send("t", b"x")
        left = [task for task in asyncio.all_tasks() if task.get_name().startswith("producer ")]
        assert left == []


async def test_cancelled_event_loop_does_not_wait_for_unsent_records() -> None:
    """`asyncio.run` cancels all tasks, also the producer's, before `async with` ends."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1, "t", 1)
        started = asyncio.Event()

        async def application() -> None:
            async with Producer(cluster.bootstrap_servers, linger_ms=60000) as producer:
                receipt = await producer.send("t", b"x")
                started.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    left.append(receipt)

        left: list[asyncio.Future[RecordMetadata]] = []
        before = asyncio.all_tasks()
        application_task = asyncio.create_task(application())
        await started.wait()
        ours = asyncio.all_tasks() - before
        assert any(task.get_name() == "producer sender" for task in ours)
        for task in ours:
            task.cancel()
        async with asyncio.timeout(30):
            await asyncio.gather(*ours, return_exceptions=True)
        assert application_task.cancelled()
        with pytest.raises(KafkaError, match="the producer was stopped"):
            await left[0]


async def test_unreachable_bootstrap_server_is_a_connection_error() -> None:
    producer = Producer("127.0.0.1:1")
    producer._network_config = type(producer._network_config)(
        bootstrap_servers=(("127.0.0.1", 1),), bootstrap_timeout_ms=50
    )
    with pytest.raises(ConnectionError, match=r"no bootstrap server responded \(127\.0\.0\.1:1\)"):
        await producer.start()
