"""Polls for one or many records return the same records, lose none, and never block the group.

Method: a real cluster in this process.
"""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Consumer, Producer, TopicPartition
from tests.clients.consumer.groups import TOPIC, Callback, History, Reader, cluster_and_admin, make_topic


async def test_getone_delivers_same_records_as_getmany() -> None:
    """A run of consecutive records ends at any event."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        where = TopicPartition(TOPIC, 0)
        async with (
            Producer(cluster.bootstrap_servers) as producer,
            Consumer(
                TOPIC,
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer,
        ):
            for number in range(700):  # more than one run, in batches that end where no run does
                await producer.send(TOPIC, b"%d" % number)
                if number % 90 == 0:
                    await producer.flush()
            await producer.flush()
            for number in range(300):
                assert (await consumer.getone()).offset == number
                assert consumer.position(where) == number + 1, "nothing ahead of the application"
            await consumer.commit()
            assert await consumer.committed(where) == 300
            consumer.seek(where, 10)
            assert (await consumer.getone()).offset == 10
            consumer.pause(where)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.getone(), 0.05)
            consumer.resume(where)
            assert [one.offset for one in (await consumer.getmany(max_records=9))[where]] == [*range(11, 20)]
            assert [(await consumer.getone()).offset for _ in range(680)] == [*range(20, 700)]
            assert consumer.metrics().records_delivered == 300 + 1 + 9 + 680
        with pytest.raises(RuntimeError, match="stopped"):
            await consumer.getone()


async def test_getone_alternates_between_partitions() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        settings = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}
        async with (
            Producer(cluster.bootstrap_servers) as producer,
            Consumer(TOPIC, **settings, max_poll_records=10) as consumer,
        ):  # type: ignore[arg-type]
            for number in range(200):
                await producer.send(TOPIC, b"v", partition=number % 2)
            await producer.flush()
            first = [(await consumer.getone()).partition for _ in range(40)]
            assert 10 <= first.count(0) <= 30, "a busy neighbour starves nobody"


async def test_getone_stops_for_rebalance() -> None:
    """A member with undelivered records revokes partitions between two of them."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)

        def member() -> Consumer:
            return Consumer(
                TOPIC,
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=50,
                auto_commit_interval_ms=60_000,
                max_poll_records=1_000_000,
            )

        async with Producer(cluster.bootstrap_servers) as producer, member() as early, member() as late:
            for number in range(2000):
                await producer.send(TOPIC, b"v", partition=number % 2)
            await producer.flush()
            assert (await early.getone()).offset == 0
            joining = asyncio.create_task(late.getone())
            taken = 1
            while not joining.done():
                await early.getone()
                taken += 1
                await asyncio.sleep(0.01)
            assert taken < 1000, "the rest of the first partition"
            assert len(early.assignment()) == 1


async def test_stopped_consumer_delivers_no_more_records() -> None:
    """More records are available, which need no other check."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        async with Producer(cluster.bootstrap_servers) as producer:
            for _ in range(5):
                await producer.send(TOPIC, b"v", partition=0)
        async with Consumer(
            TOPIC, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone()).offset == 0
        with pytest.raises(RuntimeError, match="was stopped"):
            await consumer.getone()


async def test_cancelled_poll_loses_no_record() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 2)
        values: list[bytes | None] = []
        async with (
            Producer(cluster.bootstrap_servers) as producer,
            Consumer(
                TOPIC,
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                audit="deliveries",
                fetch_max_wait_ms=10,
            ) as consumer,
        ):
            for number in range(200):
                await producer.send(TOPIC, b"%d" % number)
            await producer.flush()
            wait_s = 0.0
            while len(values) < 200:
                call = asyncio.create_task(consumer.getmany(timeout_ms=60_000, max_records=10))
                await asyncio.wait([call], timeout=wait_s)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                if not call.cancelled():
                    values += [record.value for records in call.result().values() for record in records]
                wait_s += 0.0005
        assert sorted(int(value or b"") for value in values) == list(range(200))


async def test_stopped_member_without_an_answer_of_its_coordinator_reports_its_partitions_as_lost() -> None:
    """Others may have them by now."""
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await make_topic(admin, 1)
        history = History(cluster)
        reader = await Reader("cut off", history).start()
        await history.until(lambda: reader.owned == {0})
        await cluster.crash_broker(1)
        assert reader.consumer._session is not None
        reader.consumer._session.membership.lease.end()
        await reader.stop()
        assert [event.name for event in history.events if isinstance(event, Callback)] == ["assigned", "lost"]
