"""The worlds of the contract tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from anabranch.controller.zk.server.tcp_server import ZooKeeperTcpServer
from anabranch.controller.zk.tree import ZnodeTree
from tests.contracts.zk_worlds import World, open_world


@pytest.fixture(params=["memory", "built-in", pytest.param("real", marks=pytest.mark.zookeeper)])
def kind(request: pytest.FixtureRequest) -> str:
    """Which ZooKeeper a test is for."""
    return str(request.param)


@pytest.fixture
def real_hosts(kind: str, request: pytest.FixtureRequest) -> str | None:
    """Where the real ZooKeeper is, if the test is for it. Its first user starts it, and no loop may run then."""
    return str(request.getfixturevalue("zookeeper_hosts")) if kind == "real" else None


@pytest.fixture
async def hosts(kind: str, real_hosts: str | None) -> AsyncIterator[str | None]:
    """Where a ZooKeeper is, the built-in or a real one; None stands for the one in memory."""
    if kind != "built-in":
        yield real_hosts
        return
    server = ZooKeeperTcpServer(ZnodeTree())
    await server.start("127.0.0.1")
    yield f"127.0.0.1:{server.port}/test"
    await server.stop()


@pytest.fixture
async def world(hosts: str | None) -> AsyncIterator[World]:
    async with open_world(hosts) as world:
        yield world
