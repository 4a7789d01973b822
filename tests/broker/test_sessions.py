"""Nodes whose ZooKeeper session ends register again with a new epoch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.clients.consumer.consumer import Consumer
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.session import ZkSession
from anabranch.protocol.errors import ErrorCode
from tests.anabranch.cluster.test_in_process import active_controller, create, describe, fetch, leader, produce
from tests.contracts.zk_worlds import expire_session

pytestmark = pytest.mark.timeout(60)


class Ensemble:
    """What a Cluster connects to."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts

    async def connect(self, session_timeout_ms: int) -> ZkSession:
        return await open_kazoo(self.hosts, session_timeout_ms=session_timeout_ms)


def real_cluster(hosts: str, brokers: int = 3) -> Cluster:
    cluster = Cluster(brokers)
    cluster.zookeeper = Ensemble(hosts)  # type: ignore[assignment]
    return cluster


async def all_in_sync(cluster: Cluster, name: str, count: int) -> list[Any]:
    while True:
        rows = (await describe(cluster, name)).partitions
        if all(len(row.isr_nodes) == count for row in rows):
            return rows
        await asyncio.sleep(0.01)  # what a client would do


@pytest.mark.zookeeper
@pytest.mark.parametrize("role", ["controller", "leader"])
async def test_node_with_expired_session_registers_again_and_recovers_its_replicas(
    role: str, zookeeper_hosts: str
) -> None:
    async with real_cluster(zookeeper_hosts) as cluster:
        await create(cluster, "t", partitions=3, min_insync_replicas="2")
        rows = await all_in_sync(cluster, "t", 3)
        first = await leader(cluster, "t")
        assert await produce(cluster, "t", b"before", at=first) == (0, 0)
        controller = active_controller(cluster)
        victim = (
            controller if role == "controller" else next(row.leader_id for row in rows if row.leader_id != controller)
        )
        node, old_session = cluster.nodes[victim], cluster.nodes[victim].session
        old_controller, epoch = node.controller, node.services.fence.broker_epoch
        term = cluster.nodes[controller].controller.epoch  # type: ignore[union-attr]
        await expire_session(old_session, zookeeper_hosts.partition("/")[0])  # type: ignore[arg-type]
        for other in cluster.nodes.values():
            assert await other.services.metadata.wait_until(
                lambda image: victim in image.brokers and image.brokers[victim].epoch > epoch, 60_000
            ), "everybody knows the new life"
        while node.services.fence.broker_epoch <= epoch:  # noqa: ASYNC110 its own word comes a moment later
            await asyncio.sleep(0.001)
        assert node.session is not old_session
        assert node.controller is not old_controller and not old_controller.active  # type: ignore[union-attr]
        await all_in_sync(cluster, "t", 3)
        newest = max(one.controller.epoch for one in cluster.nodes.values() if one.controller is not None)
        assert newest == term + (role == "controller")
        stored = (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        while stored[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER:  # the preferred leader may be taking over
            at = await leader(cluster, "t")
            stored = await produce(cluster, "t", b"after", at=at)
        assert stored == (0, 1)
        while b"before" not in await fetch(cluster, "t", at=await leader(cluster, "t")):
            pass


async def test_groups_of_a_node_with_expired_session_are_closed_until_the_controller_names_it_again() -> None:
    """Another broker may coordinate them since (seed 2573); here it is the only one, and leads on."""
    async with Cluster(1) as cluster:
        await create(cluster, "t", replicas=1)
        async with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g") as reader:
            while not reader.assignment():
                await reader.getmany(timeout_ms=100)
            (node,) = cluster.nodes.values()
            broker = node.services.broker
            assert broker is not None and broker.groups.built is not None
            shards = broker.groups.built.table.leadership.shards
            assert shards
            cluster.zookeeper.expire(node.session)  # type: ignore[arg-type]
            while shards:  # noqa: ASYNC110  # until the node has heard of it
                await asyncio.sleep(0)
            await produce(cluster, "t", b"after", at=1)
            while not any((await reader.getmany(timeout_ms=100)).values()):
                pass
            while not shards:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
