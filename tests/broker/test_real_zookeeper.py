"""Configurations and features with a real ZooKeeper: written, notified, applied, purged."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from anabranch import Admin, NewTopic
from anabranch.broker.config import config_changes
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.node.app import Node
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.clients.clock import time_of_day_clock
from anabranch.clients.config_admin import ALL_BROKERS
from anabranch.controller.zk import paths
from anabranch.controller.zk.kazoo_session import open_kazoo
from tests.broker.serving import until


@contextlib.asynccontextmanager
async def nodes(zookeeper: str, count: int) -> AsyncIterator[list[Node]]:
    hosts, _, chroot = zookeeper.partition("/")
    running: list[Node] = []
    try:
        for node_id in range(1, count + 1):
            node = Node(
                BrokerSettings(node_id=node_id, port=0, controlled_shutdown_enable=False),
                connect=lambda: open_kazoo(hosts, session_timeout_ms=4000, chroot=chroot),
                files=MemoryFiles(),
                rng=random.Random(node_id),
                clock_ms=time_of_day_clock(),
            )
            await node.start()
            running.append(node)
            assert await node.ready(20000)
        yield running
    finally:
        for node in running:
            await node.stop()


@pytest.mark.zookeeper
async def test_config_changes_are_applied_and_their_notifications_deleted(
    zookeeper_hosts: str,
) -> None:
    async with (
        asyncio.timeout(60),
        nodes(zookeeper_hosts, 2) as running,
        Admin(f"127.0.0.1:{running[0].port}") as admin,
    ):
        await admin.create_topics([NewTopic(name="t", partitions=1, replication_factor=2)])
        await admin.wait_for_topic("t", replicas=2)
        await admin.alter_configs("t", changes={"retention.ms": "77", "min.insync.replicas": "2"})
        await admin.alter_configs(broker=ALL_BROKERS, changes={"log.segment.bytes": "5000"})
        logs = [one.log for node in running for one in node.services.replicas.partitions() if one.topic == "t"]
        seen = {(77, 5000)}
        await until(lambda: {(log.settings.retention_ms, log.settings.segment_bytes) for log in logs} == seen)
        while (await admin.describe_topic("t")).min_insync_replicas != 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert len(logs) == 2
        assert running[1].services.features.present.epoch >= 0
        for node in running:
            seen_s = node.services.config_changes._seen
            seen_s.update({name: at_s - config_changes.RETENTION_S for name, at_s in seen_s.items()})
        await admin.alter_configs("t", unset=["retention.ms"])
        session = running[0].session
        while len(await session.children(paths.CONFIG_CHANGES)) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await until(lambda: all(log.settings.retention_ms != 77 for log in logs))
