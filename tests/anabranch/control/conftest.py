"""A cluster in this process, with its control plane."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anabranch import Admin, NewTopic
from anabranch.cluster.in_process import Cluster
from anabranch.control.actions import Actions
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.events import Events
from anabranch.control.telemetry import ClientTelemetry


@asynccontextmanager
async def controlled(brokers: int = 3, **options: Any) -> AsyncIterator[ControlledCluster]:
    """A cluster with what the control plane works on."""
    async with Cluster(brokers, seed=1, **options) as cluster:
        events = Events()
        cluster.on_node(events.watch)
        telemetry = ClientTelemetry(cluster, events)
        cluster.on_node(telemetry.watch)
        yield ControlledCluster(cluster, Actions(cluster, events), events, telemetry=telemetry)


async def with_topic(on: ControlledCluster, name: str = "t", partitions: int = 2) -> None:
    """Make a topic on all brokers, and wait until it can be used."""
    async with Admin(on.cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name=name, partitions=partitions)])
        await admin.wait_for_topic(name, replicas=len(on.cluster.node_ids))
