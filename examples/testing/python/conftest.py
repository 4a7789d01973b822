"""The cluster that all tests share: `anabranch up --control 127.0.0.1:9190`. Each begins with it as new."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from shop import Shop, Till

from anabranch.control.client import ControlClient


@pytest.fixture
def cluster() -> ControlClient:
    control = ControlClient(os.environ.get("ANABRANCH_CONTROL", "http://127.0.0.1:9190"))
    control.reset()
    control.create_topic("orders", 4)
    control.create_topic("payments", 1)
    control.create_topic("orders.dead", 1)
    return control


@pytest.fixture
def servers(cluster: ControlClient) -> str:
    return ",".join(f"{one['host']}:{one['port']}" for one in cluster.state()["nodes"])


@pytest.fixture
def shop(servers: str) -> Shop:
    return Shop(servers)


@pytest.fixture
def till(servers: str) -> Iterator[Callable[..., Till]]:
    tills: list[Till] = []

    def open_till(name: str = "till-1", **settings: object) -> Till:
        tills.append(Till(servers, name, **settings))
        return tills[-1]

    yield open_till
    for one in tills:
        one.close()
