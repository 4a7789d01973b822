"""Goal: an admin client connects and disconnects, and describes settings of a real cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from anabranch import Admin, NewTopic
from anabranch.cluster.in_process import Cluster
from tests.broker.replication.replica_cluster import until


@asynccontextmanager
async def cluster_and_admin(*, brokers: int = 2) -> AsyncIterator[tuple[Cluster, Admin]]:
    async with (
        asyncio.timeout(60),
        Cluster(brokers=brokers, seed=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        yield cluster, admin


async def test_topic_and_broker_configs_are_described() -> None:
    async with cluster_and_admin() as (_, admin):
        await admin.create_topics(
            [NewTopic(name="t", partitions=1, replication_factor=1, configs={"retention.ms": "1234"})]
        )
        await admin.wait_for_topic("t")
        configs = await admin.describe_configs("t")
        assert configs["retention.ms"].value == "1234"
        assert configs["max.message.bytes"].value == "1048588"
        assert configs["retention.ms"].source != configs["max.message.bytes"].source
        assert await admin.describe_configs(broker=2)
        with pytest.raises(ValueError, match="name a topic, a broker"):
            await admin.describe_configs()


async def test_admin_lifecycle() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, _):
        other = Admin(cluster.bootstrap_servers)
        with pytest.raises(RuntimeError, match="not started"):
            await other.list_topics()
        await other.start()
        await other.stop()
        await other.stop()
        with pytest.raises(RuntimeError, match="not started"):
            await other.list_topics()


async def test_wait_outlasts_a_cluster_that_is_down() -> None:
    async with cluster_and_admin(brokers=1) as (cluster, admin):
        await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=1)])
        await admin.wait_for_topic("t")
        await cluster.crash_broker(1)
        waiting = asyncio.create_task(admin.wait_for_topic("t"))
        await until(lambda: admin.network._updater._refresh_failures > 0)
        await cluster.start_broker(1)
        assert (await waiting).partitions[0].leader == 1
