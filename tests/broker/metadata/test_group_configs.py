"""Group configurations, from the request to their effect."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.broker.config.config_changes import change_config
from anabranch.broker.coordinators.consumer_groups.limits import limits_of
from anabranch.broker.metadata import group_configs
from anabranch.broker.metadata.group_configs import GroupConfigs
from anabranch.broker.telemetry import client_metrics_configs
from anabranch.broker.telemetry.client_metrics_configs import ClientMetricsConfigs
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk import paths
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from anabranch.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.protocol.apis.list_config_resources import ListConfigResourcesRequest
from anabranch.protocol.errors import ErrorCode
from tests.broker.coordinators.share_partitions.sharing import members, send, sharing
from tests.broker.replication.replica_cluster import until

GROUP = 32
DYNAMIC, DEFAULT = 8, 5


async def ask(cluster: Cluster, request: Any) -> Any:
    connection = await Connection.open("127.0.0.1", next(iter(cluster.nodes.values())).port, client_id="admin")
    try:
        return await connection.call(request)
    finally:
        await connection.close()


async def alter(cluster: Cluster, group: str, **texts: str | None) -> Any:
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=1 if text is None else 0, value=text)
        for name, text in texts.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    return (await ask(cluster, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))).responses[0]


async def described(cluster: Cluster, group: str, name: str) -> Any:
    resource = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=[name])
    answer = (await ask(cluster, DescribeConfigsRequest(resources=[resource]))).results[0]
    return answer if answer.error_code else answer.configs[0]


async def test_share_group_applies_its_configs_and_their_changes() -> None:
    async with sharing() as cluster, members(cluster, "a") as (a,):
        (node,) = cluster.nodes.values()
        assert node.services.broker is not None
        configs = node.services.broker.group_configs
        await send(cluster, 3)
        changed = await alter(cluster, "g", share_auto_offset_reset="earliest", share_heartbeat_interval_ms="6000")
        assert changed.error_code == ErrorCode.NONE, changed
        await until(lambda: bool(configs.of("g")))
        row = await described(cluster, "g", "share.auto.offset.reset")
        assert (row.value, row.config_source) == ("earliest", DYNAMIC)
        row = await described(cluster, "other", "share.auto.offset.reset")
        assert (row.value, row.config_source) == ("latest", DEFAULT)
        assert (await a.beat()).heartbeat_interval_ms == 6000
        await a.join()
        assert (await a.fetch()).acquired == [(0, 2, 1)]
        listed = await ask(cluster, ListConfigResourcesRequest(resource_types=[GROUP]))
        assert [one.resource_name for one in listed.config_resources] == ["g"]
        await alter(cluster, "g", share_heartbeat_interval_ms=None)
        await until(lambda: "share.heartbeat.interval.ms" not in configs.of("g"))
        assert (await a.beat()).heartbeat_interval_ms == 5000


async def test_any_group_name_is_configurable_and_invalid_configs_are_refused() -> None:
    async with sharing() as cluster:
        (node,) = cluster.nodes.values()
        assert node.services.broker is not None
        configs = node.services.broker.group_configs
        assert (await alter(cluster, "a/b é", consumer_session_timeout_ms="50000")).error_code == ErrorCode.NONE
        await until(lambda: bool(configs.of("a/b é")))
        await configs.load()
        assert configs.of("a/b é") == {"consumer.session.timeout.ms": "50000"}
        assert limits_of(node.services.groups.settings, configs.of("a/b é")).session_timeout_ms == 50_000
        refused = await alter(cluster, "g", share_isolation_level="none")
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        assert (
            await alter(cluster, "", share_isolation_level="read_committed")
        ).error_code == ErrorCode.INVALID_REQUEST
        assert (await described(cluster, "", "share.isolation.level")).error_code == ErrorCode.INVALID_REQUEST


async def test_kafka_version_without_group_configs_refuses_them() -> None:
    async with Cluster(1) as cluster:
        refused = await alter(cluster, "g", consumer_session_timeout_ms="50000")
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert (await described(cluster, "g", "consumer.session.timeout.ms")).error_code == ErrorCode.INVALID_REQUEST


class SlowSession:
    """A session that holds the read of one znode until it is released."""

    def __init__(self, session: MemorySession, path: str) -> None:
        self._session, self._path = session, path
        self.reached, self.released = asyncio.Event(), asyncio.Event()

    async def get(self, path: str) -> Any:
        if path == self._path:
            self.reached.set()
            await self.released.wait()
        return await self._session.get(path)

    async def children(self, path: str) -> list[str]:
        return sorted(await self._session.children(path))


@pytest.mark.parametrize(
    ("made", "entity"),
    [(GroupConfigs, group_configs.entity), (ClientMetricsConfigs, client_metrics_configs.entity)],
)
async def test_change_during_a_load_is_kept(made: Callable[[Any], Any], entity: Callable[[str], str]) -> None:
    """A new session watches first and then reads, so a change is announced while the rest is still being read."""
    session = await MemoryZooKeeper().connect()
    for name in ("a", "b"):
        await change_config(session, entity(name), lambda _: {"interval.ms": "1000"})
    slow = SlowSession(session, paths.config(entity("b")))
    configs = made(lambda: slow)
    loading = asyncio.create_task(configs.load())
    await slow.reached.wait()
    await change_config(session, entity("a"), lambda _: {"interval.ms": "2000"})
    reload = configs.reload_group if isinstance(configs, GroupConfigs) else configs.reload_subscription
    reloading = asyncio.create_task(reload("a"))
    for _ in range(50):  # it reads the new properties, or waits for the load
        await asyncio.sleep(0)
    slow.released.set()
    await asyncio.gather(loading, reloading)
    assert configs.of("a") == {"interval.ms": "2000"}
