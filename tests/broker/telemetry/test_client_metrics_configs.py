"""Client metrics subscriptions, from the request to the brokers."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.config.config_changes import change_config
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from anabranch.protocol.apis.list_config_resources import ListConfigResourcesRequest
from anabranch.protocol.errors import ErrorCode
from tests.broker.replication.replica_cluster import until
from tests.broker.telemetry.subscribing import alter, subscribe

CLIENT_METRICS = 16
SET, DEFAULT = 7, 5


async def described(cluster: Cluster, name: str) -> dict[str, tuple[str | None, int]]:
    resource = DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None)
    connection = await Connection.open(*cluster.address(1), client_id="admin")
    try:
        (row,) = (await connection.call(DescribeConfigsRequest(resources=[resource]))).results
        return {one.name: (one.value, one.config_source) for one in row.configs}
    finally:
        await connection.close()


async def listed(cluster: Cluster) -> list[str]:
    connection = await Connection.open(*cluster.address(1), client_id="admin")
    try:
        answer = await connection.call(ListConfigResourcesRequest(resource_types=[CLIENT_METRICS]))
        return [one.resource_name for one in answer.config_resources]
    finally:
        await connection.close()


async def test_subscriptions_are_altered_described_listed_and_deleted() -> None:
    async with asyncio.timeout(60), Cluster(2, kafka="4.1") as cluster:
        await subscribe(cluster, "a/b é", metrics="m.,n.", match="client_id=shop-.*")
        assert await described(cluster, "a/b é") == {
            "interval.ms": ("300000", DEFAULT),
            "match": ("client_id=shop-.*", SET),
            "metrics": ("m.,n.", SET),
        }
        await subscribe(cluster, "other", interval_ms="1000")
        assert await listed(cluster) == ["a/b é", "other"]
        await subscribe(cluster, "other")
        assert await listed(cluster) == ["a/b é"]
        assert (await described(cluster, "other"))["interval.ms"] == ("300000", DEFAULT)
        await cluster.crash_broker(1)
        await cluster.start_broker(1)
        assert await listed(cluster) == ["a/b é"], "a broker reads them when it starts"


@pytest.mark.parametrize(
    ("kafka", "name", "configs", "code"),
    [
        ("4.1", "", {"metrics": "*"}, ErrorCode.INVALID_REQUEST),
        ("4.1", "s", {"interval_ms": "5"}, ErrorCode.INVALID_REQUEST),
        ("4.1", "s", {"match": "nonsense"}, ErrorCode.INVALID_CONFIG),
        ("3.9", "s", {"metrics": "*"}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_invalid_subscription_is_refused(kafka: str, name: str, configs: dict[str, str], code: ErrorCode) -> None:
    async with asyncio.timeout(60), Cluster(1, kafka=kafka) as cluster:
        assert (await alter(cluster, name, **configs)).error_code == code
        assert cluster.nodes[1].services.client_metrics.names == []


async def test_malformed_subscription_znode_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async with asyncio.timeout(60), Cluster(1, kafka="4.1") as cluster:
        configs = cluster.nodes[1].services.client_metrics
        notified: list[list[tuple[str, ...]]] = []
        configs.on_change(lambda subscriptions: notified.append([one.metrics for one in subscriptions]))
        await subscribe(cluster, "good", metrics="m.")
        session = cluster.nodes[1].session
        await change_config(session, "client-metrics/bad", lambda _: {"interval.ms": "never"})
        await until(lambda: "bad" in configs.names)
        assert notified[-1] == [("m.",)]
        assert "malformed client metrics subscription bad" in caplog.text
        count = len(notified)
        await configs.load()
        assert len(notified) == count, "nothing has changed"
