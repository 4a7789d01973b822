"""A health check exits with 0 for a healthy server, else with 1 and the reason."""

from __future__ import annotations

import socket

import pytest

from anabranch.cli.health import node_trouble
from anabranch.cluster.in_process import Cluster
from anabranch.cluster.local_zookeeper import LocalZooKeeper
from tests.anabranch.cli.conftest import Command, healthy


def test_running_broker_is_healthy(servers: str, anabranch: Command) -> None:
    for role in ("broker", "controller"):
        result = healthy(anabranch, "--role", role, servers)
        assert (result.exit_code, result.output) == (0, f"{servers} is in service\n")


async def test_broker_with_a_mapped_port_is_healthy() -> None:
    """Its own Metadata names it by another port than the one that is asked."""
    async with Cluster(2, advertised_host="nat.invalid", advertised_port=29092) as cluster:
        assert [await node_trouble("127.0.0.1", one.port, "broker") for one in cluster.nodes.values()] == ["", ""]


def test_unreachable_address_is_unhealthy(anabranch: Command) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        for role in ("broker", "controller", "zookeeper"):
            assert anabranch("health", "--role", role, address).exit_code == 1
        assert "no response" in anabranch("health", address).output


def test_another_service_is_unhealthy(servers: str, anabranch: Command) -> None:
    assert anabranch("health", "--role", "zookeeper", servers).exit_code == 1


@pytest.mark.zookeeper
def test_running_zookeeper_is_healthy(local_zookeeper: LocalZooKeeper, anabranch: Command) -> None:
    assert healthy(anabranch, "--role", "zookeeper", local_zookeeper.hosts).exit_code == 0
    assert anabranch("health", local_zookeeper.hosts).exit_code == 1


def test_malformed_address_is_a_usage_error(anabranch: Command) -> None:
    wrong = anabranch("health", "9092")
    assert wrong.exit_code == 2
    assert "the server: '9092' has no port: write HOST:PORT" in wrong.output
