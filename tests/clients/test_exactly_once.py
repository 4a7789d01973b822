"""Committed records are read once and aborted ones never, during resizes and failures.

Method: a real cluster in this process; readers of committed records; resizes, dying coordinators and a second producer
with the same transactional id in the middle.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from anabranch import AbortableError, Admin, Consumer, NewTopic, Producer, ProducerFenced
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition


@asynccontextmanager
async def cluster_and_admin(*, timeout_s: float = 120) -> AsyncIterator[tuple[Cluster, Admin]]:
    async with (
        asyncio.timeout(timeout_s),
        Cluster(brokers=3, seed=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        for name, partitions in (("in", 2), ("out", 2)):
            await admin.create_topics([NewTopic(name=name, partitions=partitions, replication_factor=3)])
            await admin.wait_for_topic(name, replicas=3)
        yield cluster, admin


def reader(cluster: Cluster, *, group: str | None = None, topic: str = "out", **settings: object) -> Consumer:
    options: dict[str, object] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", **settings}
    return Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, **options)  # type: ignore[arg-type]


async def values(cluster: Cluster, count: int, **settings: object) -> list[bytes]:
    """What a new reader sees, up to `count` values and whatever comes within a moment after them."""
    found: list[bytes] = []
    async with reader(cluster, **settings) as consumer:
        while len(found) < count:
            found += _values(await consumer.getmany(timeout_ms=200))
        found += _values(await consumer.getmany(timeout_ms=200))
    return sorted(found)


def _values(records: dict[TopicPartition, list[object]]) -> list[bytes]:
    return [record.value for rows in records.values() for record in rows]  # type: ignore[attr-defined]


async def test_committed_records_are_read_and_aborted_ones_are_not() -> None:
    async with cluster_and_admin() as (cluster, _):
        async with Producer(cluster.bootstrap_servers, transactional_id="id") as producer:
            with pytest.raises(RuntimeError, match="ready"):
                await producer.send("out", b"outside")
            for n in range(6):
                await producer.begin_transaction()
                for key in range(4):
                    await producer.send("out", b"%d" % n, b"%d" % key)
                await (producer.commit_transaction() if n % 2 else producer.abort_transaction())
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait("out", b"lost")
                    _ = 1 / 0
            async with producer.transaction():
                await producer.send("out", b"last")
        committed = [b"1"] * 4 + [b"3"] * 4 + [b"5"] * 4 + [b"last"]
        assert await values(cluster, len(committed)) == committed
        assert b"lost" in await values(cluster, 14, isolation_level="read_uncommitted")


async def test_offsets_of_a_deleted_topic_are_not_committed_to_the_next_one_of_its_name() -> None:
    """The group would pass over the first records of the new topic."""
    async with (
        cluster_and_admin() as (cluster, admin),
        Producer(cluster.bootstrap_servers, transactional_id="id") as producer,
        reader(cluster, group="g", topic="in", enable_auto_commit=False) as consumer,
    ):
        async with producer.transaction():
            await producer.send("in", b"x", partition=0)
        taken = await consumer.getmany(timeout_ms=60_000)
        done = {partition: rows[-1].offset + 1 for partition, rows in taken.items()}
        member = consumer.group_metadata()
        await admin.delete_topics(["in"])
        async with asyncio.timeout(60):
            while True:
                try:
                    await admin.create_topics([NewTopic(name="in", partitions=2, replication_factor=3)])
                    break
                except KafkaError as error:
                    assert error.code == ErrorCode.TOPIC_ALREADY_EXISTS, "hidden already, and not gone yet"
                    await asyncio.sleep(0.01)
        await admin.wait_for_topic("in")
        with pytest.raises(AbortableError) as refused:
            async with producer.transaction():
                await producer.send_offsets_to_transaction(done, member)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with producer.transaction():
            await producer.send("out", b"the producer goes on")


async def test_reader_waits_for_open_transaction() -> None:
    async with (
        cluster_and_admin() as (cluster, _),
        Producer(cluster.bootstrap_servers, transactional_id="id") as producer,
        Producer(cluster.bootstrap_servers) as other,
        reader(cluster, fetch_max_wait_ms=50) as consumer,
    ):
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"first", partition=0)
        await other.send_and_wait("out", b"second", partition=0)
        assert await consumer.getmany(timeout_ms=300) == {}
        assert consumer.last_stable_offset(TopicPartition("out", 0)) == 0
        await producer.commit_transaction()
        found: list[bytes] = []
        while len(found) < 2:
            found += _values(await consumer.getmany(timeout_ms=5000))
        assert found == [b"first", b"second"]


async def test_second_producer_fences_first_and_aborts_its_transaction() -> None:
    async with cluster_and_admin() as (cluster, _):
        first = await Producer(cluster.bootstrap_servers, transactional_id="id").start()
        await first.begin_transaction()
        await first.send_and_wait("out", b"left behind")
        async with Producer(cluster.bootstrap_servers, transactional_id="id") as second:
            async with second.transaction():
                await second.send("out", b"kept")
            with pytest.raises(ProducerFenced):
                await first.commit_transaction()
            with pytest.raises(ProducerFenced):
                await first.begin_transaction()
        await first.stop()
        assert await values(cluster, 1) == [b"kept"]


async def test_too_large_record_aborts_only_its_transaction() -> None:
    async with cluster_and_admin() as (cluster, _):
        async with Producer(cluster.bootstrap_servers, transactional_id="id") as producer:
            with pytest.raises(AbortableError, match="MESSAGE_TOO_LARGE"):
                async with producer.transaction():
                    await producer.send("out", b"with it")
                    await producer.send("out", bytes(2_000_000))
            async with producer.transaction():
                await producer.send("out", b"after it")
        assert await values(cluster, 1) == [b"after it"]


async def test_offsets_of_an_old_generation_are_refused() -> None:
    async with cluster_and_admin() as (cluster, _):
        where = TopicPartition("in", 0)
        async with (
            Producer(cluster.bootstrap_servers, transactional_id="id") as producer,
            reader(cluster, group="g", topic="in", enable_auto_commit=False) as consumer,
        ):
            await consumer.getmany(timeout_ms=100)
            member = consumer.group_metadata()
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({where: 3}, member)
            await producer.commit_transaction()
            assert await consumer.committed(where) == 3
            await producer.begin_transaction()
            with pytest.raises(AbortableError, match="ILLEGAL_GENERATION"):
                await producer.send_offsets_to_transaction(
                    {where: 4}, member._replace(generation_id=member.generation_id - 1)
                )
            await producer.abort_transaction()
            assert await consumer.committed(where) == 3


async def test_offsets_of_removed_member_are_refused() -> None:
    """It learns of it before its application commits, and must not commit without a member id."""
    async with cluster_and_admin() as (cluster, _):
        where = TopicPartition("in", 0)
        async with (
            Producer(cluster.bootstrap_servers, transactional_id="id") as producer,
            reader(cluster, group="g", topic="in", enable_auto_commit=False) as dropped,
        ):
            await dropped.getmany(timeout_ms=100)
            before, session = dropped.group_metadata(), dropped._session
            assert session is not None and before.generation_id >= 0
            await session.leave()  # forgets its identity, as when a heartbeat hears that the group has dropped it
            assert session.membership.generation == -1
            assert dropped.group_metadata() == before
            await producer.begin_transaction()
            with pytest.raises(AbortableError, match="UNKNOWN_MEMBER_ID"):
                await producer.send_offsets_to_transaction({where: 4}, dropped.group_metadata())
            await producer.abort_transaction()


async def copy(cluster: Cluster, name: str, done: Callable[[], bool]) -> None:
    """Copies from `in` to `out`, exactly once; begins again with a new consumer and producer when something breaks."""
    while not done():
        try:
            async with (
                Producer(cluster.bootstrap_servers, transactional_id=name, max_block_ms=10000) as producer,
                reader(
                    cluster, group="copiers", topic="in", enable_auto_commit=False, session_timeout_ms=6000
                ) as consumer,
            ):
                while not done():
                    batch = await consumer.getmany(timeout_ms=100, max_records=20)
                    if not batch:
                        continue
                    async with producer.transaction():
                        for rows in batch.values():
                            for record in rows:
                                await producer.send("out", record.value, record.key)
                        offsets = {where: rows[-1].offset + 1 for where, rows in batch.items()}
                        await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        except (KafkaError, ConnectionError, TimeoutError):
            continue


@pytest.mark.parametrize("disturbance", ["resize", "coordinators"])
async def test_copied_topic_has_every_record_once(disturbance: str) -> None:
    async with cluster_and_admin() as (cluster, admin):
        expected = [b"%04d" % n for n in range(600)]
        found: list[bytes] = []

        def done() -> bool:
            return len(found) >= len(expected)

        async def feed() -> None:
            async with Producer(cluster.bootstrap_servers) as producer:
                for n, value in enumerate(expected):
                    await producer.send("in", value, b"key %d" % (n % 7))
                    await asyncio.sleep(0.003)

        async def watch() -> None:
            async with reader(cluster) as consumer:
                while not done():
                    found.extend(_values(await consumer.getmany(timeout_ms=200)))

        async def disturb() -> None:
            if disturbance == "resize":
                for name, partitions in (("in", 4), ("out", 5), ("in", 3), ("out", 2)):
                    await admin.create_partitions(name, partitions, allow_shrink=True)
                    await asyncio.sleep(0.3)
            else:
                for node_id in (1, 2, 3):
                    await cluster.crash_broker(node_id)
                    await asyncio.sleep(0.5)
                    await cluster.start_broker(node_id)
                    await asyncio.sleep(0.5)

        async with asyncio.TaskGroup() as group:
            group.create_task(watch())
            group.create_task(feed())
            group.create_task(copy(cluster, "copier-1", done))
            group.create_task(copy(cluster, "copier-2", done))
            group.create_task(disturb())
        assert sorted(found) == expected, Counter(found) - Counter(expected)
        assert await values(cluster, len(expected)) == expected


async def test_timed_out_commit_may_be_repeated() -> None:
    async with cluster_and_admin() as (cluster, _):
        async with Producer(cluster.bootstrap_servers, transactional_id="id") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("out", b"kept")
            assert producer._transaction_task is not None
            producer._transaction_task._max_block_ms = 300
            for node_id in (1, 2, 3):
                await cluster.crash_broker(node_id)
            with pytest.raises(KafkaError) as refused:
                await producer.commit_transaction()
            assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert "the outcome of the commit is unknown after 300 ms: EndTxn: " in str(refused.value)
            for node_id in (1, 2, 3):
                await cluster.start_broker(node_id)
            while True:
                try:
                    await producer.commit_transaction()
                    break
                except KafkaError as error:
                    assert error.code is ErrorCode.REQUEST_TIMED_OUT, error
        assert await values(cluster, 1) == [b"kept"]


async def test_stop_ends_pending_commit_of_another_task_without_cancelling_it() -> None:
    async with cluster_and_admin() as (cluster, _):
        async with Producer(cluster.bootstrap_servers, transactional_id="id") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("out", b"open")
            for node_id in (1, 2, 3):
                await cluster.crash_broker(node_id)
            committing = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
        with pytest.raises(KafkaError, match="the outcome of the commit is unknown: the producer was stopped"):
            await committing


async def test_producer_that_cannot_start_says_what_its_coordinator_answered() -> None:
    """The markers of its predecessor cannot be written: their partition has no leader."""
    async with cluster_and_admin() as (cluster, admin):
        await admin.create_topics([NewTopic(name="alone", assignments={0: [1]})])
        first = await Producer(cluster.bootstrap_servers, transactional_id="id").start()
        await first.begin_transaction()
        await first.send_and_wait("alone", b"x")
        await cluster.crash_broker(1)
        second = Producer(cluster.bootstrap_servers, transactional_id="id", max_block_ms=1000)
        reason = ""
        while (
            "InitProducerId was answered with CONCURRENT_TRANSACTIONS" not in reason
        ):  # but lost connections, at first
            with pytest.raises(KafkaError, match="no producer id after 1000 ms") as refused:
                await second.start()
            reason = str(refused.value)
        await cluster.start_broker(1)
        await first.stop()
