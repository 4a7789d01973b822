"""A node's clock is its machine's, or shifted from it; records have its time."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.broker.coordinators.transactions.transactional_id import ONGOING
from anabranch.broker.node.node_clock import NodeClock
from anabranch.clients.clock import wall_clock_ms
from anabranch.cluster.in_process import Cluster
from tests.broker.replication.replica_cluster import until

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def test_clock_is_ahead_or_behind_from_now_on() -> None:
    clock = NodeClock(lambda: 1000)
    assert clock.now_ms() == 1000
    clock.offset_ms = -300
    assert (clock.now_ms(), clock.steady_ms()) == (700, 1000)


async def test_records_have_the_time_of_their_leader_also_after_its_restart() -> None:
    """Topics with LogAppendTime are stamped by the leader."""
    async with Cluster(brokers=1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        configs = {"message.timestamp.type": "LogAppendTime"}
        await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=1, configs=configs)])
        await admin.wait_for_topic("t")
        cluster.shift_clock(1, HOUR_MS)
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"ahead")
            await cluster.stop_broker(1)
            await cluster.start_broker(1)
            await producer.send_and_wait("t", b"after a restart")
            cluster.shift_clock(1, 0)
            await producer.send_and_wait("t", b"right again")
        async with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            hours = [(await consumer.getone()).timestamp - wall_clock_ms() for _ in range(3)]
        assert [round(one / HOUR_MS) for one in hours] == [1, 1, 0]


@pytest.mark.parametrize("hours", [-1, 1])
async def test_rebalance_and_session_of_a_group_do_not_follow_a_jump_of_the_clock(hours: int) -> None:
    """Behind, the rebalance would wait for an hour; ahead, the member's session would have expired."""
    properties = {"group.initial.rebalance.delay.ms": "500", "group.min.session.timeout.ms": "100"}
    async with (
        asyncio.timeout(60),
        Cluster(brokers=1, properties=properties) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=1)])
        await admin.wait_for_topic("t")
        servers = cluster.bootstrap_servers
        async with (
            Producer(servers) as producer,
            Consumer("t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer,
        ):
            changed, groups = asyncio.Event(), cluster.nodes[1].services.groups
            groups.listeners[lambda _: changed.set()] = None
            reading = asyncio.ensure_future(consumer.getone())
            while not (joined := [one for one in groups.table.slots.values() if one.group.members]):
                await changed.wait()
                changed.clear()
            found = joined[0]
            cluster.shift_clock(1, hours * HOUR_MS)
            await producer.send_and_wait("t", b"1")
            assert (await reading).value == b"1"
            generation = found.group.generation
            cluster.shift_clock(1, 2 * hours * HOUR_MS)
            groups.alarm.wake()
            await producer.send_and_wait("t", b"2")
            assert (await consumer.getone()).value == b"2"
            await consumer.commit()
            assert found.group.generation == generation


async def test_transaction_times_out_although_the_clock_was_set_back() -> None:
    """Its timeout is a difference of dates; the checks for it do not wait until the clock is as far as before."""
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    async with (
        asyncio.timeout(20),
        Cluster(brokers=1, properties=properties) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers, transactional_id="till", transaction_timeout_ms=300) as producer,
    ):
        await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=1)])
        await admin.wait_for_topic("t")
        cluster.shift_clock(1, -HOUR_MS)
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"1")
        transaction = cluster.nodes[1].services.transactions.transaction("till")
        assert transaction is not None
        await until(lambda: transaction.state is not ONGOING)
        assert transaction.producer_epoch == 1, "its producer is fenced"


async def test_retention_of_offsets_counts_from_the_date_at_which_the_last_member_left() -> None:
    async with (
        asyncio.timeout(60),
        Cluster(brokers=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers) as producer,
    ):
        await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=1)])
        await admin.wait_for_topic("t")
        await producer.send_and_wait("t", b"1")
        cluster.shift_clock(1, 8 * DAY_MS)
        servers = cluster.bootstrap_servers
        async with Consumer("t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
            await consumer.getone()
        offsets = cluster.nodes[1].services.groups.offsets
        await offsets.expire()
        assert offsets.of("g").offset_of(("t", 0)) == 1, "it left just now"
        cluster.shift_clock(1, 16 * DAY_MS)
        await offsets.expire()
        assert not offsets.of("g").committed, "offsets.retention.minutes is seven days"
