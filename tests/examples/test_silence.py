"""examples/silence.py: each silence has one alert, also when its sensor moves to another partition meanwhile."""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path

from anabranch import Consumer
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.task_state import State
from anabranch.testing import TopologyTestDriver
from examples.silence import SILENT_AFTER_MS, topology
from tests.clients.streams.world import streams_world, until

SENSORS = [b"sensor-%d" % number for number in range(40)]


def test_sensor_is_silent_once_and_then_back() -> None:
    with TopologyTestDriver(topology()) as driver:
        driver.pipe("readings", "s1", 20)
        driver.advance(SILENT_AFTER_MS - 1)
        driver.pipe("readings", "s1", 21)
        driver.pipe("readings", None, 22)
        driver.advance(SILENT_AFTER_MS - 1)
        assert driver.read("alerts") == []
        driver.advance(1)
        driver.advance(10 * SILENT_AFTER_MS)
        driver.pipe("readings", "s1", 23)
        assert [(row.key, row.value) for row in driver.read("alerts")] == [(b"s1", "silent"), (b"s1", "back")]


async def test_each_sensor_is_silent_once_when_the_readings_are_resized(tmp_path: Path) -> None:
    now_ms = 1_000_000
    async with streams_world(tmp_path, topics=()) as world:
        await world.topics("readings", "alerts", partitions=2)
        config = StreamsConfig(
            application_id="silence",
            bootstrap_servers=world.cluster.bootstrap_servers,
            state_dir=tmp_path / "state",
            heartbeat_interval_ms=100,
            commit_interval_ms=20,
        )
        async with Streams(topology(), config, clock_ms=lambda: now_ms) as streams:
            for sensor in SENSORS:
                await world.producer.send("readings", b"20", sensor)
            await world.producer.flush()
            await until(lambda: streams.processed == len(SENSORS), "every reading is processed")
            await world.admin.create_partitions("readings", 4)
            await until(partial(has_moved, streams), "timers have moved")
            now_ms += SILENT_AFTER_MS
            assert await alerts(world.cluster.bootstrap_servers, len(SENSORS)) == Counter(
                {(sensor, "silent"): 1 for sensor in SENSORS}
            )
            for sensor in SENSORS:
                await world.producer.send("readings", b"21", sensor)
            await world.producer.flush()
            assert await alerts(world.cluster.bootstrap_servers, 2 * len(SENSORS)) == Counter(
                {(sensor, alert): 1 for sensor in SENSORS for alert in ("silent", "back")}
            )


def has_moved(streams: Streams) -> bool:
    """Whether all four tasks run, and two of them with keys that have moved."""
    running = [task for task in streams.tasks.values() if task.state is State.RUNNING and task.state_manager.entries]
    return streams.moves.keys > 0 and len(running) == 4


async def alerts(servers: str, count: int) -> Counter[tuple[bytes, str]]:
    """Return the first alerts, as many as `count`."""
    found: Counter[tuple[bytes, str]] = Counter()
    async with Consumer(
        "alerts", bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        while found.total() < count:
            for rows in (await consumer.getmany(timeout_ms=100)).values():
                for record in rows:
                    assert record.key is not None and record.value is not None
                    found[record.key, json.loads(record.value)] += 1
    return found
