"""The worlds of the contract tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.contracts.zk_worlds import World, open_world


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.zookeeper)])
def hosts(request: pytest.FixtureRequest) -> str | None:
    """Where the real ZooKeeper is; None stands for the one in memory."""
    return request.getfixturevalue("zookeeper_hosts") if request.param == "real" else None


@pytest.fixture
async def world(hosts: str | None) -> AsyncIterator[World]:
    async with open_world(hosts) as world:
        yield world
