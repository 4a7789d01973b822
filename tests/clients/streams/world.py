"""A small cluster with an application, for tests of the runtime."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.topology import Topology
from anabranch.cluster.in_process import Cluster

PARTITIONS = 4


class World:
    """A cluster with a producer and a consumer of the application's topics."""

    def __init__(self, cluster: Cluster, admin: Admin, producer: Producer, directory: Path) -> None:
        self.cluster, self.admin, self.producer, self.directory = cluster, admin, producer, directory
        self.expected: Counter[bytes] = Counter()
        self.rng = random.Random(1)

    async def topics(self, *names: str, partitions: int = PARTITIONS) -> None:
        for name in names:
            await self.admin.create_topics([NewTopic(name=name, partitions=partitions, replication_factor=1)])
            await self.admin.wait_for_topic(name)

    def instance(self, topology: Topology, name: str = "one", **settings: Any) -> Streams:
        config = StreamsConfig(
            bootstrap_servers=self.cluster.bootstrap_servers,
            state_dir=self.directory / name,
            **{"application_id": "app", "heartbeat_interval_ms": 100, "commit_interval_ms": 20, **settings},
        )
        return Streams(topology, config, rng=random.Random(name))

    async def feed(self, count: int, *, keys: int = 200) -> None:
        for _ in range(count):
            key = b"key-%d" % self.rng.randrange(keys)
            self.expected[key] += 1
            await self.producer.send("in", b"", key)
        await self.producer.flush()

    async def counted(self, *instances: Streams) -> None:
        """Wait for the expected output; a failed instance fails the test. With at-least-once, records after a refused
        commit count again.
        """
        if all(one.config.exactly_once for one in instances):
            await self.output("out", lambda table: table == self.expected, *instances)
        else:
            await self.output(
                "out", lambda table: all(table.get(key, 0) >= n for key, n in self.expected.items()), *instances
            )

    async def output(self, topic: str, complete: Callable[[dict[bytes, Any]], bool], *instances: Streams) -> None:
        reading = asyncio.ensure_future(self._read(topic, complete))
        failing = [asyncio.ensure_future(one.wait_failed()) for one in instances]
        try:
            done, _ = await asyncio.wait([reading, *failing], return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
            assert reading in done, "an instance has ended"
        finally:
            for one in (reading, *failing):
                one.cancel()
            await asyncio.gather(reading, *failing, return_exceptions=True)

    async def _read(self, topic: str, complete: Callable[[dict[bytes, Any]], bool]) -> None:
        table: dict[bytes, Any] = {}
        async with Consumer(
            topic,
            bootstrap_servers=self.cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            while not complete(table):
                for rows in (await consumer.getmany(timeout_ms=100)).values():
                    for record in rows:
                        assert record.key is not None and record.value is not None
                        table[record.key] = json.loads(record.value)


async def until(condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 (what instances do is looked at from outside)
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{what}: not in time") from None


@asynccontextmanager
async def streams_world(
    directory: Path, *, topics: Sequence[str] = ("in", "out"), **properties: str
) -> AsyncIterator[World]:
    """A cluster of its own, with its topics."""
    properties = {name.replace("_", "."): value for name, value in properties.items()}
    async with (
        asyncio.timeout(100),
        Cluster(brokers=1, seed=1, properties=properties) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
        Producer(cluster.bootstrap_servers, linger_ms=1) as producer,
    ):
        world = World(cluster, admin, producer, directory)
        await world.topics(*topics)
        yield world


def counts() -> Topology:
    """How often each key came."""
    topology = Topology()
    topology.stream("in").count("counts").to("out")
    return topology
