"""A node's clock is its machine's, or shifted from it; records have its time."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.broker.node.node_clock import NodeClock
from anabranch.clients.clock import wall_clock_ms
from anabranch.cluster.in_process import Cluster

HOUR_MS = 3_600_000


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
