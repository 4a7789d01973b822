"""A node listens and advertises as configured, and refuses what Kafka refuses.

Method: the rules of `KafkaConfig.validateValues`, one by one; then nodes whose listeners differ, over TCP.
"""

from __future__ import annotations

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, ConfigError
from anabranch.broker.config.effective_config import with_properties
from anabranch.broker.config.listeners import (
    Listener,
    address_bounds,
    base_name,
    canonical,
    inter_broker_name,
    listeners_in,
)
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.describe_cluster import DescribeClusterRequest
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.metadata import MetadataRequest

PLAIN = Listener("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092)
MAP = "listener.security.protocol.map"


def test_default_is_one_plaintext_listener() -> None:
    assert listeners_in({}, PLAIN) == (PLAIN,)
    assert BrokerSettings().listening == (PLAIN,)


def test_listener_has_name_protocol_address_and_advertised_address() -> None:
    given = {
        "listeners": "internal://127.0.0.1:9092, EXTERNAL://[::1]:0",
        "advertised.listeners": "EXTERNAL://kafka.example:19094",
        MAP: "INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL",
    }
    internal, external = listeners_in(given, PLAIN)
    assert (internal.name, internal.protocol, internal.reachable_host) == ("INTERNAL", "PLAINTEXT", "127.0.0.1")
    assert (external.host, external.port, external.tls, external.sasl) == ("::1", 0, True, True)
    assert (external.reachable_host, external.reachable_port(5)) == ("kafka.example", 19094)
    assert str(external) == "EXTERNAL://[::1]:0"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"listeners": "A://h:1"}, "No security protocol defined for listener A"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "different name"),
        ({"listeners": "PLAINTEXT://h:1,SSL://h:1"}, "different port"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.2:1"}, "different port"),
        ({"listeners": "PLAINTEXT://h"}, "write NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:70000"}, "write NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://h:1", "advertised.listeners": "SSL://h:1"}, "names SSL"),
        ({MAP: "PLAINTEXT"}, "not NAME:PROTOCOL"),
        ({MAP: "PLAINTEXT:TLS"}, "not NAME:PROTOCOL"),
        ({MAP: "PLAINTEXT:SSL,PLAINTEXT:SSL"}, "twice"),
    ],
)
def test_invalid_listeners_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        listeners_in(given, PLAIN)


def test_an_ipv4_and_an_ipv6_listener_may_share_a_port() -> None:
    given = {"listeners": "A://127.0.0.1:9092,B://[::1]:9092", MAP: "A:PLAINTEXT,B:PLAINTEXT"}
    assert [one.port for one in listeners_in(given, PLAIN)] == [9092, 9092]


def test_brokers_use_the_listener_that_is_named_or_has_their_protocol() -> None:
    both = (PLAIN, Listener("IN", "SSL", "127.0.0.1", 9093))
    assert inter_broker_name({}, both) == "PLAINTEXT"
    assert inter_broker_name({"inter.broker.listener.name": "in"}, both) == "IN"
    assert inter_broker_name({"security.inter.broker.protocol": "PLAINTEXT"}, both) == "PLAINTEXT"
    assert inter_broker_name({}, both[1:]) == "IN"
    with pytest.raises(ConfigError, match="Only one of"):
        inter_broker_name({"inter.broker.listener.name": "IN", "security.inter.broker.protocol": "SSL"}, both)
    with pytest.raises(ConfigError, match="no listener SSL for traffic between brokers"):
        inter_broker_name({"security.inter.broker.protocol": "SSL"}, both)
    with pytest.raises(ConfigError, match="the listener between brokers is ambiguous"):
        inter_broker_name({}, (both[1], Listener("OUT", "SSL", "127.0.0.1", 9094)))


def test_property_with_a_listener_prefix_is_known_by_its_base_name() -> None:
    assert base_name("ssl.client.auth") == ("", "ssl.client.auth")
    assert base_name("listener.name.external.ssl.client.auth") == ("EXTERNAL", "ssl.client.auth")
    assert base_name("listener.name.external.scram-sha-256.sasl.jaas.config") == ("EXTERNAL", "sasl.jaas.config")
    with pytest.raises(ConfigError, match="unknown property"):
        with_properties(BrokerSettings(), {"listener.name.external.no.such": "1"})


async def test_metadata_has_the_addresses_of_the_clients_listener() -> None:
    listeners = ["PLAINTEXT://127.0.0.1:0", "OTHER://127.0.0.1:0"]
    async with Cluster(2, listeners=listeners, properties={MAP: "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"}) as cluster:
        ports = {name: [node.server.ports[name] for node in cluster.nodes.values()] for name in ("PLAINTEXT", "OTHER")}
        assert cluster.bootstrap_servers_of("OTHER").endswith(f":{ports['OTHER'][1]}")
        for expected in ports.values():
            connection = await Connection.open("127.0.0.1", expected[0], client_id="test")
            metadata = await connection.call(MetadataRequest(topics=[]))
            assert sorted(one.port for one in metadata.brokers) == sorted(expected)
            described = await connection.call(DescribeClusterRequest(include_cluster_authorized_operations=False))
            assert sorted(one.port for one in described.brokers) == sorted(expected)
            found = await connection.call(FindCoordinatorRequest(coordinator_keys=["g"]))
            while found.coordinators[0].port == -1:
                found = await connection.call(FindCoordinatorRequest(coordinator_keys=["g"]))
            assert found.coordinators[0].port in expected
            await connection.close()


async def test_leader_without_the_clients_listener_is_listener_not_found() -> None:
    properties = {MAP: "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT", "default.replication.factor": "1"}
    both = ["PLAINTEXT://127.0.0.1:0", "OTHER://127.0.0.1:0"]
    async with Cluster(2, listeners=both, properties=properties) as cluster:
        await cluster.stop_broker(2)
        await cluster.start_broker(2, {"listeners": "PLAINTEXT://127.0.0.1:0"})
        port = cluster.nodes[1].server.ports["OTHER"]
        connection = await Connection.open("127.0.0.1", port, client_id="test")
        codes: set[int] = set()
        topic = MetadataRequest(topics=None)
        plain = await Connection.open("127.0.0.1", cluster.nodes[1].port, client_id="test")
        from anabranch.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest

        made = CreatableTopic(name="t", num_partitions=4, replication_factor=1, assignments=[], configs=[])
        await plain.call(CreateTopicsRequest(topics=[made], timeout_ms=10000))
        while len(codes) < 2:
            answer = await connection.call(topic)
            assert [one.node_id for one in answer.brokers] == [1]
            codes = {row.error_code for one in answer.topics for row in one.partitions if row.leader_id != 2}
        assert codes == {0, 72}  # LISTENER_NOT_FOUND
        old = await connection.call(topic, version=5)
        assert {row.error_code for one in old.topics for row in one.partitions} == {0, 5}
        await connection.close()
        await plain.close()


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("::0001", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("node-3", "node-3"),
    ],
)
def test_addresses_are_canonicalized(address: str, same: str) -> None:
    assert canonical(address) == same


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ({"max.connections.per.ip": "0"}, "name the addresses that may connect"),
        ({"max.connections.per.ip.overrides": "10.0.0.1"}, "not ADDRESS:COUNT"),
        ({"max.connections.per.ip.overrides": "10.0.0.1:5,nobody:5"}, "'nobody:5' is not ADDRESS:COUNT"),
        ({"max.connections.per.ip.overrides": "10.0.0.1:-5"}, "not ADDRESS:COUNT"),
    ],
)
def test_invalid_connection_bounds_are_refused(properties: dict[str, str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        with_properties(BrokerSettings(), properties)


def test_connection_bounds_per_ip_can_be_overridden() -> None:
    settings = with_properties(
        BrokerSettings(),
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.0.0.1:5, [::1]:2, ::ffff:10.0.0.2:3"},
    )
    assert settings.max_connections_per_ip == 0
    assert address_bounds(settings.max_connections_per_ip_overrides) == {"10.0.0.1": 5, "::1": 2, "10.0.0.2": 3}
