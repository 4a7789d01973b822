"""A node's clock is its machine's, or shifted from it; records have its time."""

from __future__ import annotations

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.broker.node.node_clock import NodeClock
from anabranch.clients.clock import wall_clock_ms
from anabranch.cluster.in_process import Cluster

HOUR_MS = 3_600_000


def test_clock_is_ahead_or_behind_from_now_on() -> None:
    clock = NodeClock(lambda: 1000)
    assert clock.now_ms() == 1000
    clock.offset_ms = -300
    assert clock.now_ms() == 700


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
