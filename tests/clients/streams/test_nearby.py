"""Instances with racks process partitions that are stored in their rack.

Method: two brokers and two instances in two racks, and partitions that have one replica each: without the strategy, or
without the racks, tasks are dealt out in turns.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from anabranch import Admin, NewTopic, Producer
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.task_state import State
from anabranch.cluster.in_process import Cluster
from tests.clients.streams.world import World, counts, until

RACK_OF = {0: "a", 1: "a", 2: "b", 3: "b"}


async def test_tasks_run_in_rack_of_their_input_replicas(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(100),
        Cluster(brokers=2, racks=("a", "b"), seed=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers, linger_ms=1) as producer,
    ):
        world = World(cluster, admin, producer, tmp_path)
        where = {index: [1 if rack == "a" else 2] for index, rack in RACK_OF.items()}
        await admin.create_topics([NewTopic(name="in", assignments=where)])
        await admin.wait_for_topic("in")
        await world.topics("out")
        async with at(world, "a") as first, at(world, "b") as second:
            await until(lambda: partitions(first) == {0, 1} and partitions(second) == {2, 3}, "each has what is near")
            await world.feed(200)
            await world.counted(first, second)


def at(world: World, rack: str) -> Streams:
    """An instance in a rack."""
    return world.instance(counts(), rack, client_rack=rack, rack_aware_assignment_strategy="min_traffic")


def partitions(one: Streams) -> set[int]:
    """Of the input, those whose tasks run here."""
    return {task.partition for task, running in one.tasks.items() if running.state is State.RUNNING}
