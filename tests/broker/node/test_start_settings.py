"""Settings at a node's start: unsupported ones are refused, ones without effect are logged."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from anabranch.broker.config.broker_settings import BrokerSettings, ConfigError
from anabranch.broker.node import start_settings as module
from anabranch.broker.node.start_settings import (
    check_peers_resolve,
    check_reachable,
    refuse_twice,
    start_settings,
    warn_of_open_doors,
    warn_while_unreachable,
    zookeeper_login,
)
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk.access import Login
from tests.broker.serving import until


@pytest.mark.parametrize(
    "properties",
    [
        {"sasl.enabled.mechanisms": "PLAIN"},
        {"ssl.client.auth": "required"},
        {"ssl.keystore.location": "/keys"},
        {"zookeeper.ssl.client.enable": "true"},
        {"delegation.token.master.key": "secret"},
    ],
    ids=lambda properties: next(iter(properties)),
)
def test_unsupported_security_properties_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"would not be kept|it protects nothing") as caught:
        start_settings(BrokerSettings(), properties)
    assert next(iter(properties)) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_property_of_an_unknown_listener_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no listener OUT; there is PLAINTEXT"):
        start_settings(BrokerSettings(), {"listener.name.out.ssl.client.auth": "required"})


@pytest.mark.parametrize("host", ["kafka.invalid", "kafka..example", "a" * 64])
async def test_advertised_host_that_cannot_be_looked_up_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="brokers cannot connect to"):
        await check_peers_resolve(BrokerSettings(advertised_host=host))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "10.0.0.1"])
async def test_host_that_can_be_looked_up_is_accepted(host: str) -> None:
    await check_peers_resolve(BrokerSettings(advertised_host=host))


@pytest.mark.parametrize("host", ["kafka..example", "a" * 64, "a\0b"])
def test_host_that_is_no_name_is_refused(host: str) -> None:
    for settings in (BrokerSettings(host=host), BrokerSettings(advertised_host=host)):
        with pytest.raises(ConfigError, match=r"listener PLAINTEXT: .* has a name with an empty part"):
            check_reachable(settings)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address at which nothing of a node listens, taken for one of another machine."""
    monkeypatch.setattr(module, "_is_loopback", lambda host: False)
    monkeypatch.setattr(module, "CONNECT_INTERVAL_S", 0.01)
    return "127.0.0.2"


async def test_unreachable_advertised_address_is_logged_until_reachable(
    elsewhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server((elsewhere, 0)) as reserved:
        port = reserved.getsockname()[1]
    settings = BrokerSettings(node_id=7, port=port, advertised_host=elsewhere)
    async with asyncio.timeout(60):
        trial = asyncio.create_task(warn_while_unreachable(settings))
        await until(lambda: bool(caplog.messages))
        with socket.create_server((elsewhere, port)):
            await trial
    (line,) = caplog.messages
    assert f"brokers cannot connect to broker 7 at {elsewhere}:{port}" in line and "refused" in line


async def test_cluster_with_unreachable_brokers_logs_it_before_it_is_ready(
    elsewhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(60):
        cluster = Cluster(1, advertised_host=elsewhere)
        starting = asyncio.create_task(cluster.start())
        named = f"cannot connect to broker 1 at {elsewhere}"
        await until(lambda: any(named in one for one in caplog.messages))
        assert not starting.done()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        for node_id in list(cluster.nodes):
            await cluster.crash_broker(node_id)  # a stop in order would wait for the controller
        await cluster.stop()


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl=true needs zookeeper.auth"),
        ({"zookeeper.auth": "planted"}, "zookeeper.auth: write digest:USER:PASSWORD"),
        ({"zookeeper.auth": "digest:brokers:"}, "write digest:USER:PASSWORD"),
        ({"zookeeper.auth": "x509:brokers:planted"}, "write digest:USER:PASSWORD"),
    ],
)
def test_znode_acls_follow_zookeeper_set_acl(properties: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        start_settings(BrokerSettings(), properties)
    assert "planted" not in str(caught.value)


def test_zookeeper_login_is_parsed_and_hidden_in_reprs() -> None:
    assert zookeeper_login(start_settings(BrokerSettings(), {})) is None
    settings = start_settings(BrokerSettings(), {"zookeeper.auth": "digest:brokers:pla:nted"})
    assert zookeeper_login(settings) == Login("digest", "brokers", "pla:nted")
    assert "nted" not in repr(settings) + repr(zookeeper_login(settings))


def test_java_class_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="no Java class can be loaded"):
        start_settings(BrokerSettings(), {"create.topic.policy.class.name": "com.example.Policy"})


def test_properties_without_effect_are_logged_once_unless_default(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        given = start_settings(
            BrokerSettings(),
            {"num.io.threads": "3", "num.network.threads": "3", "ssl.client.auth": "none", "num.partitions": "2"},
        ).given
    assert caplog.messages == ["these properties have no effect here: num.io.threads"]
    assert given["num.io.threads"] == "3", "DescribeConfigs tells what was given"


@pytest.mark.parametrize("name", ["broker.id", "node.id"])
def test_node_id_is_accepted_under_both_property_names(name: str) -> None:
    settings = start_settings(BrokerSettings(), {name: "0"})
    assert (settings.node_id, dict(settings.given)) == (0, {})


def test_invalid_node_id_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 0"):
        start_settings(BrokerSettings(), {"broker.id": "-1"})
    with pytest.raises(ConfigError, match="the same property"):
        start_settings(BrokerSettings(), {"broker.id": "1", "node.id": "2"})


@pytest.mark.parametrize("name", ["host", "port", "roles", "data.dir", "advertised.host"])
def test_option_only_settings_are_unknown_as_properties(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown property"):
        start_settings(BrokerSettings(), {name: "1"})


def test_setting_given_as_option_and_as_property_is_refused() -> None:
    with pytest.raises(ConfigError, match="write --listen instead"):
        refuse_twice({"listeners": "PLAINTEXT://a:1"}, {"listeners": "--listen"})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_wildcard_address_is_not_advertised(host: str) -> None:
    with pytest.raises(ConfigError, match="write --advertise HOST"):
        check_reachable(BrokerSettings(host=host))
    check_reachable(BrokerSettings(host=host, advertised_host="broker.example"))


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({}, ""),
        ({"listeners": "PLAINTEXT://localhost:0"}, ""),
        ({"listeners": "PLAINTEXT://[::1]:0"}, ""),
        ({"listeners": "PLAINTEXT://10.0.0.1:0"}, "PLAINTEXT://10.0.0.1"),
        ({"listeners": "SASL_PLAINTEXT://10.0.0.1:0", "security.inter.broker.protocol": "SASL_PLAINTEXT"}, ""),
        ({"listeners": "SSL://10.0.0.1:0", "security.inter.broker.protocol": "SSL"}, "SSL://10.0.0.1"),
        (
            {"listeners": "SSL://10.0.0.1:0", "security.inter.broker.protocol": "SSL", "ssl.client.auth": "required"},
            "",
        ),
        (
            {
                "listeners": "SSL://10.0.0.1:0,PLAINTEXT://10.0.0.2:0",
                "listener.name.ssl.ssl.client.auth": "required",
            },
            "PLAINTEXT://10.0.0.2",
        ),
    ],
)
def test_listener_open_to_other_machines_is_logged(
    properties: dict[str, str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_open_doors(start_settings(BrokerSettings(), properties))
    assert [one.getMessage().split()[2] for one in caplog.records] == ([told] if told else [])
