"""The cluster that all tests share: `anabranch up --control 127.0.0.1:9190`. Each test begins with an empty cluster.

A cluster of processes (`anabranch up --processes --control 127.0.0.1:9190`) works, too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from shop import Shop, Till

from anabranch.control.client import ControlClient
from anabranch.control.clock_client import ClockClient


@pytest.fixture
def cluster() -> ControlClient:
    control = ControlClient(os.environ.get("ANABRANCH_CONTROL", "http://127.0.0.1:9190"))
    if control.reason_against("POST /v1/state/reset"):
        clean(control)
    else:
        control.reset()
    control.create_topic("orders", 4)
    control.create_topic("payments", 1)
    control.create_topic("orders.dead", 1)
    return control


def clean(control: ControlClient) -> None:
    """Remove what the last test left behind, in a cluster that cannot be reset."""
    control.faults.clear()
    for node in control.nodes.values():
        if not node.running:
            node.start()
    state = control.state()
    admin = AdminClient({"bootstrap.servers": ",".join(f"{one['host']}:{one['port']}" for one in state["nodes"])})
    groups = [one["group"] for one in state["groups"]]
    for done in admin.delete_consumer_groups(groups).values() if groups else ():
        with contextlib.suppress(KafkaException):  # it is gone already
            done.result(60)
    for topic in state["topics"]:
        if not topic["topic"].startswith("__"):
            control.ask("DELETE", f"/v1/topics/{topic['topic']}")


@pytest.fixture
def clock(cluster: ControlClient) -> ClockClient:
    if reason := cluster.reason_against("POST /v1/clock"):
        pytest.skip(reason)
    return cluster.clock


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
