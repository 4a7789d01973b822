"""An instance that slept past its session writes nothing after its successor.

Method: a real cluster and the successor in one loop; the sleeper in a thread of its own, whose user's function blocks
its whole loop, as a stopped process would be.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from anabranch import Consumer
from anabranch.clients.streams.config import AT_LEAST_ONCE, EXACTLY_ONCE
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.topology import Topology
from anabranch.protocol.topic_partition import TopicPartition
from tests.clients.streams.world import PARTITIONS, World, counts, streams_world, until

SESSION_MS = 1000
CHANGELOG = "app-counts-changelog"


class Sleeper(threading.Thread):
    """An instance that blocks in the next record on demand."""

    def __init__(self, world: World, **settings: Any) -> None:
        super().__init__(name="sleeper")
        self.tired, self.asleep, self.wake = threading.Event(), threading.Event(), threading.Event()
        self.streams: Streams = world.instance(self._topology(), "sleeper", session_timeout_ms=SESSION_MS, **settings)
        self.failure: BaseException | None = None
        self._end = asyncio.Event()
        self._loop = asyncio.new_event_loop()

    def _topology(self) -> Topology:
        topology = Topology()
        topology.stream("in").map_values(self._process).count("counts").to("out")
        return topology

    def _process(self, value: Any) -> Any:
        if self.tired.is_set() and not self.asleep.is_set():
            self.asleep.set()
            self.wake.wait()
        return value

    @property
    def generation(self) -> int:
        return self.streams._consumer.generation

    def run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        except BaseException as error:
            self.failure = error
        finally:
            self._loop.close()

    async def _live(self) -> None:
        async with self.streams:
            ending = asyncio.ensure_future(self._end.wait())
            failing = asyncio.ensure_future(self.streams.wait_failed())
            await asyncio.wait([ending, failing], return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            failing.cancel()

    async def end(self) -> None:
        self.wake.set()
        if self.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
        await asyncio.get_running_loop().run_in_executor(None, self.join)
        if self.failure is not None:
            raise self.failure


async def everything(world: World, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """What counts of a topic: its records, but those of transactions that were aborted."""
    found: list[tuple[int, bytes | None, bytes | None]] = []
    places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    async with Consumer(
        topic,
        bootstrap_servers=world.cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        known = {one for one in places if one.partition in consumer.partitions_of(topic)}
        ends = await consumer.end_offsets(known)
        while any(consumer.position(one) < end for one, end in ends.items()):
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found += [(record.partition, record.key, record.value) for record in records]
    return found


@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE, AT_LEAST_ONCE])
@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
async def test_instance_frozen_past_its_session_writes_nothing(guarantee: str, protocol: str, tmp_path: Path) -> None:
    async with streams_world(tmp_path, group_min_session_timeout_ms=str(SESSION_MS)) as world:
        settings = {"processing_guarantee": guarantee, "rebalance_protocol": protocol}
        sleeper = Sleeper(world, **settings)
        sleeper.start()
        try:
            await world.feed(100, keys=20)
            await world.counted()
            sleeper.tired.set()
            await world.feed(200, keys=20)
            await until(sleeper.asleep.is_set, "it has a batch in its hands")
            generation = sleeper.generation
            async with world.instance(counts(), "successor", **settings) as successor:
                await world.counted(successor)
                await until(lambda: not successor._committer.open, "the last commit")
                written = [await everything(world, topic) for topic in ("out", CHANGELOG)]
                sleeper.wake.set()
                await until(lambda: sleeper.generation > generation or not sleeper.is_alive(), "it is back")
                assert [await everything(world, topic) for topic in ("out", CHANGELOG)] == written
        finally:
            await sleeper.end()
