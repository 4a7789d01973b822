"""Telemetry over TCP: subscriptions, pushes, and receivers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.broker.telemetry.instances import Push
from anabranch.broker.telemetry.subscriptions import Client
from anabranch.broker.telemetry.telemetry import UNCOMPRESSED_BYTES_MAX
from anabranch.clients.connection import SOFTWARE_VERSION
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk.znodes import uuid_to_text
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.records.compression import Compression, compress
from anabranch.protocol.wire import ZERO_UUID
from tests.broker.replication.replica_cluster import until
from tests.broker.telemetry.pushing import TELEMETRY, client_of, get, push_of
from tests.broker.telemetry.subscribing import subscribe

Received = list[tuple[Client, Push, bytes]]


@contextlib.asynccontextmanager
async def taking(**properties: str) -> AsyncIterator[tuple[Cluster, Received]]:
    """A cluster that takes telemetry, and what it has taken."""
    async with (
        asyncio.timeout(60),
        Cluster(1, kafka="4.1", properties=TELEMETRY | {k.replace("_", "."): v for k, v in properties.items()}) as one,
    ):
        received: Received = []
        one.nodes[1].services.telemetry.receivers.append(lambda *push: received.append(push))
        yield one, received


async def test_client_gets_an_instance_id_and_pushes_subscribed_metrics() -> None:
    async with taking(telemetry_max_bytes="500000") as (cluster, received), client_of(cluster) as client:
        await subscribe(cluster, "all", metrics="*", interval_ms="100", match="client_software_name=rdkafka")
        response = await get(client)
        assert (response.error_code, response.push_interval_ms, response.requested_metrics) == (0, 100, ["*"])
        assert (response.telemetry_max_bytes, response.delta_temporality) == (500_000, True)
        assert response.accepted_compression_types == [4, 3, 1, 2]
        assert response.client_instance_id != ZERO_UUID and response.client_instance_id[6] >> 4 == 4, "a random uuid"
        pushed = await client.call(push_of(response, compress(Compression.ZSTD, b"OTLP"), Compression.ZSTD))
        assert pushed.error_code == 0
        ((who, push, metrics),) = received
        assert (who.client_id, who.software_name, metrics) == ("shop", "rdkafka", b"OTLP")
        assert who.client_instance_id == uuid_to_text(response.client_instance_id)
        assert (push.compression, push.terminating) == (Compression.ZSTD, False)
        (known,) = cluster.nodes[1].services.telemetry.clients()
        assert (known.pushes, known.client) == (1, who)


@pytest.mark.parametrize("codec", list(Compression))
async def test_push_is_accepted_in_every_codec(codec: Compression) -> None:
    metrics = bytes(3 << 20)  # so much that it is unpacked in the thread
    async with taking(telemetry_max_bytes=str(4 << 20)) as (cluster, received), client_of(cluster) as client:
        await subscribe(cluster, "all", metrics="*", interval_ms="100")
        response = await get(client)
        assert (await client.call(push_of(response, compress(codec, metrics), codec))).error_code == 0
        assert [one for *_, one in received] == [metrics]


async def test_empty_push_is_accepted() -> None:
    async with taking() as (cluster, received), client_of(cluster) as client:
        response = await get(client)
        assert (await client.call(push_of(response, b"", Compression.ZSTD))).error_code == 0
        (known,) = cluster.nodes[1].services.telemetry.clients()
        assert (known.pushes, [one for *_, one in received]) == (1, [b""])


@pytest.mark.parametrize(
    "metrics",
    [
        b"no zstd",
        compress(Compression.ZSTD, b"OTLP")[:-1],
        compress(Compression.ZSTD, bytes(UNCOMPRESSED_BYTES_MAX + 1)),
    ],
    ids=["nonsense", "cut off", "a small push that becomes a large one"],
)
async def test_push_that_does_not_decompress_is_refused(metrics: bytes) -> None:
    async with taking() as (cluster, received), client_of(cluster) as client:
        response = await get(client)
        assert (await client.call(push_of(response, metrics, Compression.ZSTD))).error_code == ErrorCode.INVALID_RECORD
        (known,) = cluster.nodes[1].services.telemetry.clients()
        assert (known.pushes, known.failed_with, received) == (0, ErrorCode.INVALID_RECORD, [])


def reset_peak_bytes() -> int:
    """Forget the peak, as making the bomb took memory, too. Returns what this process has in memory now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def peak_bytes() -> int:
    """The most that this process had in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(one.split()[1]) * 1024 for one in lines if one.startswith("VmHWM"))


@pytest.mark.parametrize("codec", [one for one in Compression if one is not Compression.NONE])
async def test_push_too_large_after_decompression_is_refused_in_every_codec(codec: Compression) -> None:
    """The broker never holds more than the bound, and keeps serving."""
    bomb = compress(codec, bytes(8 * UNCOMPRESSED_BYTES_MAX))
    async with taking(telemetry_max_bytes=str(len(bomb))) as (cluster, received), client_of(cluster) as client:
        response = await get(client)
        before_bytes = reset_peak_bytes()
        pushing = asyncio.ensure_future(client.call(push_of(response, bomb, codec)))
        async with client_of(cluster, client_id="other") as other:
            assert (await get(other)).error_code == 0
        assert (await pushing).error_code == ErrorCode.INVALID_RECORD
        assert peak_bytes() - before_bytes < 4 * UNCOMPRESSED_BYTES_MAX
        assert received == []


async def test_subscription_matches_the_clients_software_name_and_version() -> None:
    async with taking() as (cluster, _):
        await subscribe(
            cluster,
            "one",
            metrics="m.",
            match=f"client_software_name=rdkafka,client_software_version={SOFTWARE_VERSION}",
        )
        async with client_of(cluster, "apache-kafka-java") as other, client_of(cluster) as client:
            assert (await get(other)).requested_metrics == []
            assert (await get(client)).requested_metrics == ["m."]


async def test_subscriptions_follow_changes_and_survive_a_lost_session() -> None:
    async with taking() as (cluster, received), client_of(cluster) as client:
        await subscribe(cluster, "one", metrics="m.", interval_ms="100")
        response = await get(client)
        await subscribe(cluster, "one", metrics="n.")
        refused = await client.call(push_of(response))
        assert (refused.error_code, received) == (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, [])
        again = await get(client, response.client_instance_id)
        assert (again.requested_metrics, again.client_instance_id) == (["n."], response.client_instance_id)
        node, sessions = cluster.nodes[1], cluster.zookeeper
        sessions.expire(node.session)  # type: ignore[arg-type]
        assert await node.ready(30_000)
        await subscribe(cluster, "two", metrics="o.")
        assert (await get(client)).requested_metrics == ["n.", "o."]
        await subscribe(cluster, "one")
        assert (await get(client)).requested_metrics == ["o."], "who says nothing any more wants nothing"


async def test_disconnected_client_is_removed() -> None:
    async with taking() as (cluster, _):
        telemetry = cluster.nodes[1].services.telemetry
        async with client_of(cluster) as client:
            await get(client)
            assert len(list(telemetry.clients())) == 1
        await until(lambda: not list(telemetry.clients()))


@pytest.mark.parametrize(("kafka", "properties"), [("4.1", {}), ("3.9", TELEMETRY)])
async def test_disabled_telemetry_is_not_advertised(kafka: str, properties: dict[str, str]) -> None:
    async with (
        asyncio.timeout(60),
        Cluster(1, kafka=kafka, properties=properties) as cluster,
        client_of(cluster) as client,
    ):
        hello = ApiVersionsRequest(client_software_name="rdkafka", client_software_version="1")
        assert not {71, 72} & {one.api_key for one in (await client.call(hello)).api_keys}
        assert not cluster.nodes[1].services.takes_telemetry
        with pytest.raises(Exception, match="GetTelemetrySubscriptions"):
            await get(client)
