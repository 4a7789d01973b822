"""The matrix: every client and capability, with three broker processes and a real ZooKeeper.

`make test` runs the Python clients without what takes long; `make interop` installs the others and runs everything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from anabranch.broker.profiles.profile import DEFAULT
from tests.interop.capabilities import CAPABILITIES
from tests.interop.clients import CLIENTS, OLD_FORMATS, Client
from tests.interop.world import SHOWN, World, running_world

WHOLE = bool(os.environ.get("ANABRANCH_INTEROP"))
SHORT = frozenset({"produce", "eager", "transactions", "admin"})
SHORT_OF_ONE = frozenset({"cooperative", "codecs", "leader killed"})
"""What is not left to `make interop`; of the second list, only librdkafka's."""

pytestmark = [
    pytest.mark.interop,
    pytest.mark.processes,
    pytest.mark.zookeeper,
]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running_world() as one:
        yield one


def cells() -> Iterator[object]:
    for client in CLIENTS:
        for capability in CAPABILITIES:
            mine = SHORT | SHORT_OF_ONE if client is CLIENTS[0] else SHORT
            if WHOLE or (client.python and capability in mine):
                yield pytest.param(client, capability, id=f"{client.name}-{capability}".replace(" ", "-"))


@pytest.mark.parametrize(("client", "capability"), list(cells()))
def test_cell(world: World, client: Client, capability: str) -> None:
    if client.absent:
        pytest.skip(f"ABSENT: {client.absent}")
    if capability in client.lacks:
        pytest.skip(f"-: {client.lacks[capability]}")
    if capability == OLD_FORMATS and os.environ.get(SHOWN, DEFAULT) >= "4":
        pytest.skip("-: a Kafka 4 takes no version before record batches")
    world.heal()  # a cell that failed may have left somebody dead
    CAPABILITIES[capability](world, client)
