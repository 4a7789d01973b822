"""A cluster runs on a clock loop like on any other, and an hour of it can be skipped."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Admin, NewTopic, Producer
from anabranch.clock.cluster_clock import ClusterClock, ClusterTimer
from anabranch.cluster.in_process import Cluster

pytestmark = pytest.mark.asyncio(loop_factories=["clock"])


async def test_brokers_that_lose_zookeeper_are_replaced_without_real_time() -> None:
    clock, cluster = ClusterClock.new(), Cluster(3)
    assert clock is not None
    async with clock.running(cluster), Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        await admin.wait_for_topic("t", replicas=3)
        image = cluster.nodes[1].services.metadata.image
        leader = image.topics["t"].partitions[0].leader
        session = cluster.nodes[leader].services.session
        clock.run_at(0)

        async def suspend() -> None:
            session.lose_connection()  # type: ignore[arg-type]

        await clock.run(suspend())
        await clock.advance(17)
        other = cluster.nodes[leader % 3 + 1].services.metadata
        assert other.image.topics["t"].partitions[0].leader == leader
        await clock.advance(3)
        assert other.image.topics["t"].partitions[0].leader not in (leader, -1)
        clock.run_at(1)
        # The old leader would accept the record and never get it replicated, as a zombie leader of Kafka.
        async with Producer(cluster.bootstrap_servers.split(",")[leader % 3]) as producer:
            await producer.send_and_wait("t", b"x")
    assert asyncio.get_running_loop()._clocks == ()  # type: ignore[attr-defined]


async def test_timers_of_both_kinds_can_be_cancelled() -> None:
    loop, clock = asyncio.get_running_loop(), ClusterClock.new()
    assert clock is not None

    async def later() -> asyncio.TimerHandle:
        return loop.call_later(60, print)

    ours, theirs = await clock.run(later()), await later()
    assert isinstance(ours, ClusterTimer) and not isinstance(theirs, ClusterTimer)
    ours.cancel()
    theirs.cancel()
    assert ours.cancelled() and theirs.cancelled()


async def test_other_features_behave_as_asyncio() -> None:
    loop = asyncio.get_running_loop()
    assert loop.time_of_day() is None  # type: ignore[attr-defined]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await loop.create_future()
    assert await loop.run_in_executor(None, lambda: 7) == 7
