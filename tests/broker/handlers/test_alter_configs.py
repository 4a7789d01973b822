"""Configuration changes at run time: refusals, and effects on every broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.broker.administration.config_alterations import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
)
from anabranch.broker.replication.partition import Partition
from anabranch.clients.admin import Admin
from anabranch.clients.topic_admin import NewTopic
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk import paths, znodes
from anabranch.protocol.apis import alter_configs as old
from anabranch.protocol.apis import incremental_alter_configs as new
from anabranch.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from anabranch.protocol.errors import ErrorCode
from tests.anabranch.cluster.test_in_process import active_controller, ask, create, describe

pytestmark = pytest.mark.timeout(60)


def one(name: str, value: str | None, operation: int = SET) -> new.AlterableConfig:
    return new.AlterableConfig(name=name, config_operation=operation, value=value)


def resource(kind: int, name: str, *configs: new.AlterableConfig) -> new.AlterConfigsResource:
    return new.AlterConfigsResource(resource_type=kind, resource_name=name, configs=list(configs))


async def alter(
    cluster: Cluster, *resources: new.AlterConfigsResource, validate_only: bool = False, node_id: int = 1
) -> list[int]:
    request = new.IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return [row.error_code for row in (await ask(cluster, node_id, request)).responses]


async def replace(cluster: Cluster, kind: int, name: str, **configs: str | None) -> int:
    rows = [old.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    asked = old.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    response = await ask(cluster, 1, old.AlterConfigsRequest(resources=[asked], validate_only=False))
    code: int = response.responses[0].error_code
    return code


async def described(cluster: Cluster, kind: int, name: str, *keys: str, node_id: int = 1) -> dict[str, Any]:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
    (result,) = (await ask(cluster, node_id, request)).results
    assert result.error_code == 0, result.error_message
    return {row.name: row for row in result.configs}


async def seen(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 the caller's time is bounded
        await asyncio.sleep(0.005)


def replicas(cluster: Cluster, topic: str) -> list[Partition]:
    found = [one for node in cluster.nodes.values() for one in node.services.replicas.partitions()]
    return [one for one in found if one.topic == topic]


async def test_topic_config_change_reaches_every_replica_and_client() -> None:
    async with Cluster(3) as cluster:
        assert (await create(cluster, "t")).error_code == 0
        changes = resource(
            TOPIC,
            "t",
            one("max.message.bytes", "1000"),
            one("retention.ms", "5000"),
            one("segment.bytes", "2000"),
            one("min.insync.replicas", "2"),
            one("cleanup.policy", "compact", APPEND),
            one("message.timestamp.type", "LogAppendTime"),
            one("compression.type", "gzip"),
        )
        assert await alter(cluster, changes, node_id=2) == [0]

        def everywhere() -> bool:
            logs = [one.log.settings for one in replicas(cluster, "t")]
            return len(logs) == 3 and all(
                (log.max_message_bytes, log.retention_ms, log.segment_bytes, log.cleanup_policy)
                == (1000, 5000, 2000, "delete,compact")
                and log.uses_log_append_time
                and log.compression_type == "gzip"
                for log in logs
            )

        await seen(everywhere)
        assert {one.min_insync_replicas for one in replicas(cluster, "t")} == {2}
        while (await describe(cluster, "t")).min_insync_replicas != 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        row = (await described(cluster, TOPIC, "t", "cleanup.policy"))["cleanup.policy"]
        assert (row.value, row.config_source, row.config_type) == ("delete,compact", 1, 7)
        assert [(one.name, one.value, one.source) for one in row.synonyms] == [
            ("cleanup.policy", "delete,compact", 1),
            ("log.cleanup.policy", "delete", 5),
        ]
        assert row.documentation
        undone = resource(TOPIC, "t", one("cleanup.policy", "delete", SUBTRACT), one("retention.ms", None, DELETE))
        assert await alter(cluster, undone) == [0]
        await seen(lambda: {one.log.settings.cleanup_policy for one in replicas(cluster, "t")} == {"compact"})
        assert await replace(cluster, TOPIC, "t", retention_bytes="7") == 0
        await seen(lambda: {one.log.settings.retention_bytes for one in replicas(cluster, "t")} == {7})
        assert {one.log.settings.max_message_bytes for one in replicas(cluster, "t")} == {1048588}


async def test_broker_configs_change_per_broker_or_by_default_and_topics_inherit() -> None:
    async with Cluster(2) as cluster:
        assert (await create(cluster, "t", replicas=2)).error_code == 0
        assert (await create(cluster, "own", replicas=2, **{"retention.ms": "9"})).error_code == 0
        common = resource(
            BROKER,
            "",
            one("log.retention.ms", "3000"),
            one("min.insync.replicas", "2"),
            one("log.cleaner.backoff.ms", "77"),
            one("producer.id.expiration.ms", "555"),
        )
        assert await alter(cluster, common) == [0]
        await seen(lambda: {one.log.settings.retention_ms for one in replicas(cluster, "t")} == {3000})
        assert {one.log.settings.retention_ms for one in replicas(cluster, "own")} == {9}
        assert {one.log.settings.producer_id_expiration_ms for one in replicas(cluster, "t")} == {555}
        assert all(node.services.settings.log_cleaner_backoff_ms == 77 for node in cluster.nodes.values())
        while (await describe(cluster, "t")).min_insync_replicas != 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert await alter(cluster, resource(BROKER, "2", one("log.retention.ms", "4000")), node_id=2) == [0]
        await seen(lambda: cluster.nodes[2].services.settings.log_retention_ms == 4000)
        assert cluster.nodes[1].services.settings.log_retention_ms == 3000
        row = (await described(cluster, BROKER, "2", "log.retention.ms", node_id=2))["log.retention.ms"]
        assert (row.value, row.config_source, row.read_only) == ("4000", 2, False)
        assert [(one.name, one.value, one.source) for one in row.synonyms] == [
            ("log.retention.ms", "4000", 2),
            ("log.retention.ms", "3000", 3),
            ("log.retention.hours", "168", 5),
        ]
        topic = (await described(cluster, TOPIC, "t", "retention.ms", node_id=2))["retention.ms"]
        assert (topic.value, topic.config_source) == ("4000", 2)
        default = await described(cluster, BROKER, "")
        assert {name: (row.value, row.config_source) for name, row in default.items()}["log.retention.ms"] == (
            "3000",
            3,
        )
        # A broker that starts later knows it from the start.
        await cluster.stop_broker(2)
        await cluster.start_broker(2)
        assert cluster.nodes[2].services.settings.log_retention_ms == 4000
        assert await alter(cluster, resource(BROKER, "2", one("log.retention.ms", None, DELETE)), node_id=2) == [0]
        await seen(lambda: cluster.nodes[2].services.settings.log_retention_ms == 3000)


async def test_config_changes_made_during_a_lost_session_are_applied() -> None:
    async with Cluster(2) as cluster:
        assert (await create(cluster, "t", replicas=2)).error_code == 0
        away = cluster.nodes[2]
        before = away.session
        # What was written while it was out of touch, and announced to others only:
        session = cluster.nodes[1].session
        await session.set(paths.topic_config("t"), znodes.encode_config({"retention.ms": "77"}))
        await session.create(paths.config("brokers/<default>"), znodes.encode_config({"message.max.bytes": "78"}))
        cluster.zookeeper.expire(before)
        await seen(lambda: away.session is not before)
        mine = [one for one in away.services.replicas.partitions() if one.topic == "t"]
        await seen(lambda: mine[0].log.settings.retention_ms == 77)
        await seen(lambda: away.services.settings.message_max_bytes == 78)
        assert await alter(cluster, resource(TOPIC, "t", one("retention.ms", "79"))) == [0]
        await seen(lambda: mine[0].log.settings.retention_ms == 79)


async def test_enabling_unclean_election_elects_a_leader() -> None:
    async with Cluster(3) as cluster:
        assert (await create(cluster, "t", replicas=3)).error_code == 0
        behind, *in_sync = sorted(cluster.nodes, key=lambda one: one == active_controller(cluster))
        await cluster.crash_broker(behind)
        last = cluster.nodes[in_sync[-1]].services.metadata
        await last.wait_until(lambda image: behind not in image.topics["t"].partitions[0].isr, 60_000)
        for node_id in in_sync:
            await cluster.crash_broker(node_id)
        await cluster.start_broker(behind)
        services = cluster.nodes[behind].services
        assert await services.metadata.wait_until(lambda image: "t" in image.topics, 60_000)
        assert services.metadata.image.topics["t"].partitions[0].leader == -1
        change = resource(BROKER, "", one("unclean.leader.election.enable", "true"))
        assert await alter(cluster, change, node_id=behind) == [0]
        await seen(lambda: services.metadata.image.topics["t"].partitions[0].leader == behind)


HERE = "listener.name.plaintext"


@pytest.mark.parametrize(
    ("asked", "codes"),
    [
        ([resource(TOPIC, "t", one("no.such", "1"))], [ErrorCode.INVALID_CONFIG]),
        ([resource(TOPIC, "t", one("retention.ms", "soon"))], [ErrorCode.INVALID_CONFIG]),
        ([resource(TOPIC, "t", one("min.compaction.lag.ms", str(2**63 - 1)), one("max.compaction.lag.ms", "1"))], [40]),
        ([resource(TOPIC, "t", one("retention.ms", "1", APPEND))], [ErrorCode.INVALID_CONFIG]),
        ([resource(TOPIC, "t", one("retention.ms", None))], [ErrorCode.INVALID_REQUEST]),
        ([resource(TOPIC, "t", one("retention.ms", "1"), one("retention.ms", "2"))], [ErrorCode.INVALID_REQUEST]),
        ([resource(TOPIC, "t", one("retention.ms", "1", 9))], [ErrorCode.INVALID_REQUEST]),
        ([resource(TOPIC, "t"), resource(TOPIC, "t")], [ErrorCode.INVALID_REQUEST] * 2),
        ([resource(TOPIC, "gone", one("retention.ms", "1"))], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ([resource(TOPIC, "", one("retention.ms", "1"))], [ErrorCode.INVALID_REQUEST]),
        ([resource(TOPIC, "a b", one("retention.ms", "1"))], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ([resource(3, "t"), resource(TOPIC, "t", one("retention.ms", "1"))], [ErrorCode.INVALID_REQUEST, 0]),
        ([resource(BROKER, "1", one("num.partitions", "3"))], [ErrorCode.INVALID_REQUEST]),
        ([resource(BROKER, "", one("ssl.keystore.type", "JKS"))], [ErrorCode.INVALID_REQUEST]),
        ([resource(BROKER, "", one("sasl.enabled.mechanisms", "PLAIN"))], [ErrorCode.INVALID_REQUEST]),
        ([resource(BROKER, "2", one("log.retention.ms", "3"))], [ErrorCode.INVALID_REQUEST]),
        ([resource(BROKER, "x", one("log.retention.ms", "3"))], [ErrorCode.INVALID_REQUEST]),
        ([resource(BROKER, "1", one("log.segment.bytes", "3"))], [ErrorCode.INVALID_REQUEST]),
        ([resource(BROKER, "1", one("num.io.threads", "99"))], [ErrorCode.INVALID_REQUEST]),
        ([resource(BROKER, "1", one("log.retention.ms", "3", SUBTRACT))], [ErrorCode.INVALID_CONFIG]),
        ([resource(BROKER, "1", one("somebody.elses", "3"), one("num.io.threads", "9"))], [ErrorCode.NONE]),
        ([resource(BROKER, "1", one(f"{HERE}.ssl.truststore.location", "ca.pem"))], [ErrorCode.INVALID_REQUEST]),
        ([resource(BROKER, "1", one(f"{HERE}.plain.sasl.jaas.config", "x"))], [ErrorCode.INVALID_REQUEST]),
        ([resource(BROKER, "1", one("listener.name.another.ssl.truststore.location", "x"))], [ErrorCode.NONE]),
        ([resource(BROKER, "", one("listener.name.another.ssl.truststore.location", "x"))], [42]),
        ([resource(BROKER_LOGGER, "1", one("nobody", "INFO"))], [ErrorCode.INVALID_CONFIG]),
        ([resource(BROKER_LOGGER, "1", one("root", "LOUD"))], [ErrorCode.INVALID_CONFIG]),
        ([resource(BROKER_LOGGER, "1", one("root", "INFO", APPEND))], [ErrorCode.INVALID_REQUEST]),
        ([resource(BROKER_LOGGER, "1", one("root", None, DELETE))], [ErrorCode.INVALID_REQUEST]),
        ([resource(BROKER_LOGGER, "", one("root", "INFO"))], [ErrorCode.INVALID_REQUEST]),
    ],
)
async def test_invalid_change_is_refused(asked: list[new.AlterConfigsResource], codes: list[int]) -> None:
    async with Cluster(1) as cluster:
        assert (await create(cluster, "t", replicas=1)).error_code == 0
        assert await alter(cluster, *asked, validate_only=True) == codes
        assert await alter(cluster, *asked) == codes


async def test_validate_only_changes_nothing() -> None:
    async with Cluster(1) as cluster:
        assert (await create(cluster, "t", replicas=1)).error_code == 0
        change = resource(TOPIC, "t", one("retention.ms", "77"))
        assert await alter(cluster, change, validate_only=True) == [0]
        assert await alter(cluster, resource(TOPIC, "t", one("retention.bytes", "78"))) == [0]
        await seen(lambda: replicas(cluster, "t")[0].log.settings.retention_bytes == 78)
        assert replicas(cluster, "t")[0].log.settings.retention_ms != 77
        assert await replace(cluster, TOPIC, "t", retention_ms=None) == ErrorCode.INVALID_REQUEST
        assert await replace(cluster, BROKER_LOGGER, "1", root="INFO") == ErrorCode.INVALID_REQUEST


async def test_logger_levels_are_set_and_described() -> None:
    logger = logging.getLogger("anabranch.broker.network.server")
    before = logger.level
    try:
        async with Cluster(1) as cluster:
            assert await alter(
                cluster, resource(BROKER_LOGGER, "1", one("anabranch.broker.network.server", "FATAL"))
            ) == [0]
            row = (await described(cluster, BROKER_LOGGER, "1", "anabranch.broker.network.server"))[
                "anabranch.broker.network.server"
            ]
            assert (row.value, row.config_source) == ("FATAL", 6)
            assert logger.level == logging.CRITICAL
            assert await alter(
                cluster, resource(BROKER_LOGGER, "1", one("anabranch.broker.network.server", None, DELETE))
            ) == [0]
            assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(before)


async def test_lineage_configs_of_a_resized_topic_are_described_and_read_only() -> None:
    async with Cluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=4)])
        await admin.wait_for_topic("t")
        assert not await described(cluster, TOPIC, "t", "reshard.base", "reshard.history"), "as in Kafka"
        for count in (6, 3):
            await admin.create_partitions("t", count, allow_shrink=True)
        rows = await described(cluster, TOPIC, "t", "reshard.base", "reshard.history")
        assert {name: row.value for name, row in rows.items()} == {
            "reshard.base": "1",
            "reshard.history": "0:4,1:6,2:3",
        }
        assert all(row.read_only and row.documentation for row in rows.values())
        assert await alter(cluster, resource(TOPIC, "t", one("reshard.base", "3"))) == [ErrorCode.INVALID_CONFIG]
