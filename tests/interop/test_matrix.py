"""The matrix: every client, every capability, against three broker processes and a real ZooKeeper.

`make test` runs the Python clients without what takes long; `make interop` installs the others and runs everything.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from anabranch.zookeeper import why_unavailable
from tests.interop.capabilities import CAPABILITIES
from tests.interop.clients import CLIENTS, Client
from tests.interop.world import World

WHOLE = bool(os.environ.get("ANABRANCH_INTEROP"))
LONG = frozenset({"static members", "old formats", "resize", "leader killed", "coordinator killed"})
"""Left to `make interop`."""
SHORT_KILLS = frozenset({("confluent-kafka", "leader killed"), ("aiokafka", "coordinator killed")})

pytestmark = [
    pytest.mark.interop,
    pytest.mark.processes,
    pytest.mark.zookeeper,
    pytest.mark.timeout(240),
]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    if reason := why_unavailable():
        pytest.skip(f"NO REAL ZOOKEEPER: {reason}")
    with asyncio.Runner() as runner:
        one = World(runner)
        runner.run(one.cluster.start())
        yield one
        runner.run(one.cluster.stop())


def cells() -> Iterator[object]:
    for client in CLIENTS:
        for capability in CAPABILITIES:
            short = client.python and (capability not in LONG or (client.name, capability) in SHORT_KILLS)
            if short or WHOLE:
                yield pytest.param(client, capability, id=f"{client.name}-{capability}".replace(" ", "-"))


@pytest.mark.parametrize(("client", "capability"), list(cells()))
def test_cell(world: World, client: Client, capability: str) -> None:
    if client.absent:
        pytest.skip(f"ABSENT: {client.absent}")
    if capability in client.lacks:
        pytest.skip(f"-: {client.lacks[capability]}")
    world.heal()  # a cell that failed may have left somebody dead
    CAPABILITIES[capability](world, client)
