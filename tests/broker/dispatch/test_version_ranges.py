"""Advertised and accepted versions, by kind of peer."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.broker.dispatch.dispatcher import peer_versions
from anabranch.broker.dispatch.version_ranges import FIRST_PRIVATE_KEY
from anabranch.broker.profiles.profile import VERSIONS
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.api_versions import ApiVersionsRequest
from anabranch.protocol.apis.fetch import FetchRequest
from anabranch.protocol.apis.metadata import MetadataRequest
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest
from anabranch.protocol.connection import CLIENT_SOFTWARE, NODE_SOFTWARE
from anabranch.protocol.registry import BY_NAME

BETWEEN_NODES = ("LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown", "AlterPartition", "Envelope")
ORDER = UpdateMetadataRequest(controller_id=1, controller_epoch=0, live_brokers=[], topic_states=[])


def test_inter_broker_apis_are_not_advertised_to_clients_from_kafka_4_on() -> None:
    others = peer_versions("4.1", True).others.advertised
    nodes = peer_versions("4.1", True).nodes.advertised
    for name in BETWEEN_NODES:
        assert BY_NAME[name].key not in others and BY_NAME[name].key in nodes, name


def test_produce_is_advertised_from_version_0_and_refused_below_3() -> None:
    others = peer_versions("4.0", True).others
    assert (others.advertised[0][0], others.accepted[0][0]) == (0, 3)
    assert others.advertised[1][0] == others.accepted[1][0] == 4


def test_private_apis_are_advertised_to_this_projects_clients() -> None:
    for version in VERSIONS:
        mine = peer_versions(version, True)
        assert FIRST_PRIVATE_KEY in mine.ranges_for(CLIENT_SOFTWARE).advertised
        assert (FIRST_PRIVATE_KEY in mine.ranges_for("rdkafka").advertised) is (version == "3.9")
        assert mine.ranges_for(NODE_SOFTWARE) is mine.nodes


def test_telemetry_apis_are_advertised_when_enabled_and_in_the_kafka_version() -> None:
    keys = {BY_NAME[name].key for name in ("GetTelemetrySubscriptions", "PushTelemetry")}
    for version in VERSIONS:
        assert not keys & peer_versions(version, True).others.advertised.keys()
        assert (keys <= peer_versions(version, True, telemetry=True).others.advertised.keys()) is (version >= "4")
        assert not keys & peer_versions(version, False, telemetry=True).others.advertised.keys(), "no broker"


def test_inter_node_versions_are_equal_in_every_profile() -> None:
    assert len({tuple(sorted(peer_versions(version, True).nodes.accepted.items())) for version in VERSIONS}) == 1


async def test_inter_broker_requests_need_the_node_software_name() -> None:
    """Other connections cannot send inter-broker requests, as in Kafka 4."""
    async with Cluster(1, kafka="4.1") as cluster, asyncio.timeout(60):
        for name, taken in ((NODE_SOFTWARE, True), (CLIENT_SOFTWARE, False), ("stranger", False)):
            connection = await Connection.open(*cluster.address(1), client_id="t", software_name=name)
            if taken:
                assert (await connection.call(ORDER, version=8)).error_code != 0, "an old epoch"
            else:
                with pytest.raises(ConnectionError):
                    await connection.call(ORDER, version=8)
            await connection.close()


async def test_refused_api_versions_request_opens_no_inter_broker_apis() -> None:
    async with Cluster(1, kafka="4.1") as cluster, asyncio.timeout(60):
        connection = await Connection.open(*cluster.address(1), client_id="t", software_name="stranger")
        nameless = ApiVersionsRequest(client_software_name=NODE_SOFTWARE, client_software_version="-")
        assert (await connection.call(nameless, version=3)).error_code != 0
        with pytest.raises(ConnectionError):
            await connection.call(ORDER, version=8)
        await connection.close()


async def test_kafka_4_profile_refuses_old_request_versions() -> None:
    fetch = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    async with Cluster(1, kafka={1: "4.0"}) as cluster, asyncio.timeout(60):
        connection = await Connection.open(*cluster.address(1), client_id="t", software_name="stranger")
        assert (await connection.call(MetadataRequest(topics=[]), version=1)).brokers
        assert (await connection.call(fetch, version=4)).responses == []
        with pytest.raises(ConnectionError):
            await connection.call(fetch, version=3)


@pytest.mark.parametrize("kafka", [*VERSIONS, {1: "2.8", 2: "4.2", 3: "3.9"}], ids=str)
async def test_nodes_of_different_profiles_form_a_cluster(kafka: str | dict[int, str]) -> None:
    async with asyncio.timeout(60), Cluster(3, kafka=kafka) as cluster:
        assert len(cluster.nodes) == 3
