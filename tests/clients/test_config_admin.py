"""Configurations through `Admin`: of topics, one broker, and all brokers, at run time."""

from __future__ import annotations

import asyncio

import pytest

from anabranch import Admin, NewTopic
from anabranch.clients.config_admin import ALL_BROKERS
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.clients.test_admin import cluster_and_admin


async def test_topic_configs_are_altered_and_described_with_their_source() -> None:
    async with cluster_and_admin() as (_, admin):
        await admin.create_topics([NewTopic(name="t", partitions=1)])
        await admin.alter_configs("t", changes={"retention.ms": "77"}, append={"cleanup.policy": "compact"})
        configs = await admin.describe_configs("t", names=["retention.ms", "cleanup.policy"])
        assert {name: (entry.value, entry.source) for name, entry in configs.items()} == {
            "retention.ms": ("77", 1),
            "cleanup.policy": ("delete,compact", 1),
        }
        assert configs["retention.ms"].documentation
        await admin.alter_configs("t", unset=["retention.ms"], subtract={"cleanup.policy": "delete"})
        configs = await admin.describe_configs("t")
        assert (configs["retention.ms"].source, configs["cleanup.policy"].value) == (5, "compact")
        with pytest.raises(KafkaError) as refused:
            await admin.alter_configs("t", changes={"retention.ms": "soon"}, validate_only=True)
        assert refused.value.code == ErrorCode.INVALID_CONFIG and "whole number" in str(refused.value)


async def test_configs_of_one_broker_and_of_all_brokers_are_altered() -> None:
    async with cluster_and_admin() as (_, admin):
        await admin.alter_configs(broker=ALL_BROKERS, changes={"log.retention.bytes": "1000"})
        await admin.alter_configs(broker=2, changes={"log.retention.bytes": "2000"})
        wanted = {1: "1000", 2: "2000"}
        for broker, text in wanted.items():
            while (entry := (await admin.describe_configs(broker=broker))["log.retention.bytes"]).value != text:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert [source for _, _, source in entry.synonyms][-1] == 5
        assert list(await admin.describe_configs(broker=ALL_BROKERS)) == ["log.retention.bytes"]
        with pytest.raises(KafkaError) as refused:
            await admin.alter_configs(broker=1, changes={"num.partitions": "3"})
        assert refused.value.code == ErrorCode.INVALID_REQUEST
        with pytest.raises(ValueError, match="name a topic, a broker, or a subscription"):
            await admin.describe_configs()


async def test_client_metrics_subscriptions_are_created_and_deleted() -> None:
    async with Cluster(1, kafka="4.1") as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.alter_configs(client_metrics="all", changes={"metrics": "*", "interval.ms": "1000"})
        while await admin.list_client_metrics() != ["all"]:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        configs = await admin.describe_configs(client_metrics="all")
        assert {name: (one.value, one.source) for name, one in configs.items()} == {
            "interval.ms": ("1000", 7),
            "match": ("", 5),
            "metrics": ("*", 7),
        }
        await admin.alter_configs(client_metrics="all", unset=["metrics", "interval.ms"])
        while await admin.list_client_metrics():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        with pytest.raises(ValueError, match="name a topic, a broker, or a subscription"):
            await admin.alter_configs("t", client_metrics="all", changes={})
