"""The worlds in which a contract is tried."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tests.contracts.zk_worlds import InWorld, World, open_world


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.zookeeper)])
def in_world(request: pytest.FixtureRequest, arun: Callable[[Coroutine[Any, Any, None]], None]) -> InWorld:
    hosts = request.getfixturevalue("zookeeper_hosts") if request.param == "real" else None

    async def live(story: Callable[[World], Awaitable[None]]) -> None:
        async with open_world(hosts) as world:
            await story(world)

    return lambda story: arun(live(story))
