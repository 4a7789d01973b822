"""Suspended, expired and old ZooKeeper sessions of a controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from anabranch.controller import topic_admin
from anabranch.controller.events import BrokersRead
from anabranch.controller.zk import paths
from anabranch.controller.zk.kazoo_session import open_kazoo
from anabranch.controller.zk.session import ZkSession
from anabranch.protocol.apis.create_partitions import CreatePartitionsRequest
from tests.contracts.zk_worlds import expire_session
from tests.controller.cluster import TestCluster
from tests.controller.held_link import HeldLink

SESSION_TIMEOUT_MS = 30_000


class RealZooKeeper:
    """What a TestCluster connects to."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts

    async def connect(self) -> ZkSession:
        return await open_kazoo(self.hosts, session_timeout_ms=SESSION_TIMEOUT_MS)


@asynccontextmanager
async def running_cluster() -> AsyncIterator[TestCluster]:
    cluster = await TestCluster.start(3, preferred_election_delay_ms=0)
    try:
        yield cluster
    finally:
        await cluster.stop()


async def test_controller_without_connection_pauses_and_logs() -> None:
    """A new controller may be elected: no decisions and no responses until the session reconnects."""
    async with running_cluster() as cluster:
        await cluster.create_topic("t", 2)
        for broker in cluster.brokers.values():
            await broker.until(lambda broker=broker: "t" in broker.metadata)
        controller = cluster.controller
        session = controller.session_under_test  # type: ignore[attr-defined]
        runner = controller._runner
        assert runner is not None
        moved = {one: replace(broker, rack="elsewhere") for one, broker in runner.state.brokers.items()}
        # To be told to everybody, without any read or write; behind the news, and before the reads that it causes.
        session.on_session(lambda _: runner._queue.put_nowait(BrokersRead(moved)))
        session.lose_connection()
        await cluster.until(lambda: not controller.active)
        assert await controller._ask(lambda token: pytest.fail("nobody is asked")) is None
        request = CreatePartitionsRequest(topics=[], timeout_ms=100, validate_only=False)
        assert (await controller.create_partitions(request)).results == []
        await cluster.brokers[1].die()
        await topic_admin.create_topic(cluster.client, name="u", topic_id=b"u" * 16, assignment={0: [2, 3]}, configs={})
        for _ in range(50):
            await asyncio.sleep(0.001)  # time in which something could be sent
        live_brokers = [one.live_brokers for broker in cluster.brokers.values() for one in broker.requests[-1:]]
        assert {one.rack for brokers in live_brokers for one in brokers} == {None}
        session.reconnect()
        await cluster.until(lambda: controller.active)
        await cluster.until_states("t", lambda states: all(1 not in state.isr for state in states.values()))
        await cluster.until_states("u", lambda states: len(states) == 1)
        assert controller.epoch == 1, "a short cut is no reason to resign"


async def test_expired_controller_sends_nothing_more() -> None:
    async with running_cluster() as cluster:
        await cluster.create_topic("t", 4)
        first = cluster.controller
        slow = cluster.brokers[1]
        slow.answering.clear()
        pending = asyncio.ensure_future(cluster.resize("t", 8))
        await cluster.until_states("t", lambda states: len(states) > 4)
        await cluster.add_controller(101, preferred_election_delay_ms=0)
        cluster.zookeeper.expire(first.session_under_test)  # type: ignore[attr-defined]
        assert (await pending).error_code == 41
        assert not first.active
        slow.answering.set()
        await cluster.until(lambda: cluster.seen("resize published"))
        epochs = [request.controller_epoch for broker in cluster.brokers.values() for request in broker.requests]
        assert cluster.seen("resize published")[0].controller_epoch == 2 == max(epochs)
        for broker in cluster.brokers.values():
            mine = [request.controller_epoch for request in broker.requests]
            assert mine == sorted(mine), "no broker hears the first one after the second"


@pytest.mark.zookeeper
async def test_expired_controller_resigns_and_successor_finishes_its_resize(zookeeper_hosts: str) -> None:
    cluster = TestCluster(zookeeper=RealZooKeeper(zookeeper_hosts))
    await cluster.begin(3)
    try:
        first = cluster.controller
        await cluster.create_topic("t", partitions=4)
        slow = cluster.brokers[1]
        slow.answering.clear()
        pending = asyncio.ensure_future(cluster.resize("t", 6))
        await cluster.until_states("t", lambda states: len(states) == 6)
        second = await cluster.add_controller(101)
        await expire_session(first.session_under_test, zookeeper_hosts.partition("/")[0])  # type: ignore[attr-defined]
        assert (await pending).error_code == 41
        assert not first.active
        await cluster.until(lambda: second.active)
        slow.answering.set()
        await cluster.until(lambda: cluster.seen("resize published"))
        assert second.epoch == 2
        assert (await cluster.topic("t")).history == ((0, 4), (1, 6))
    finally:
        await cluster.stop()


@pytest.mark.zookeeper
async def test_late_write_of_zombie_changes_nothing(zookeeper_hosts: str) -> None:
    """Its write arrives after another election, in a live session. Only the controller epoch refuses it."""
    address, _, root = zookeeper_hosts.partition("/")
    zookeeper = RealZooKeeper(zookeeper_hosts)
    cluster = TestCluster(zookeeper=zookeeper)
    async with HeldLink(int(address.rpartition(":")[2])) as link:
        try:
            cluster.client = await cluster.connect()
            for broker_id in (1, 2, 3):
                await cluster.add_broker(broker_id)
            zookeeper.hosts = f"127.0.0.1:{link.port}/{root}"
            zombie = await cluster.add_controller(100, preferred_election_delay_ms=0)
            zookeeper.hosts = zookeeper_hosts
            await cluster.until(lambda: zombie.active)
            await cluster.create_topic("t", partitions=4)
            second = await cluster.add_controller(101, preferred_election_delay_ms=0)
            before = await cluster.client.get(paths.topic("t"))
            link.hold()
            pending = asyncio.ensure_future(cluster.resize("t", 6))
            await cluster.until(lambda: link.delayed > 0)
            await cluster.client.delete(paths.CONTROLLER)
            await cluster.until(lambda: second.active)
            assert zombie.active and zombie.epoch < second.epoch, "it does not know yet"
            link.release()
            assert (await pending).error_code == 41
            assert await cluster.client.get(paths.topic("t")) == before
            assert not cluster.seen("resize planned") or cluster.seen("resize planned")[0].controller_epoch == 1
            await cluster.until(lambda: not zombie.active)
            assert (await cluster.resize("t", 6)).error_code == 0
            assert second.epoch == 2 and second.active
        finally:
            await cluster.stop()
