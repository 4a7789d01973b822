"""An instance of Kafka Streams 3.9 and one of this package share the tasks of an application.

Each leads in turn, and each meets the other at other versions of the formats: older, as new, and from the future. Each
copies records and signs them; in the end every record is there, signed by one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from anabranch import Consumer
from anabranch.clients.network import GROUP
from anabranch.clients.streams import group_member, streams_partition_assignor
from anabranch.clients.streams.serdes import TEXT
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.streams_partition_assignor import StreamsMember
from anabranch.clients.streams.subscription_info import (
    SubscriptionInfo,
    decode_subscription_info,
    encode_subscription_info,
)
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.topology import Topology
from anabranch.protocol.apis.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from anabranch.protocol.consumer_protocol import decode_subscription
from anabranch.protocol.streams_protocol import LATEST_VERSION
from anabranch.spark_jobs.java import COMPILER, find
from tests.clients.streams.oracle import jars_or_skip
from tests.clients.streams.world import PARTITIONS, World, streams_world

pytestmark = [pytest.mark.kafka_jars]

PATIENCE_S = 60.0
GROUP_ID = "app"


class Java:
    """The instance of Kafka Streams, by its output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.state, self._tasks = "", ""
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            state, _, tasks = line.decode().strip().partition(" ")
            if state.isupper():
                self.state, self._tasks = state, tasks

    @property
    def tasks(self) -> set[str]:
        """What it runs; nothing while it rebalances."""
        return {one for one in self._tasks.split(",") if one} if self.state == "RUNNING" else set()

    async def stop(self) -> None:
        """Leave the group, and end."""
        assert self._process.stdin is not None
        if self._process.returncode is None:
            self._process.stdin.write(b"\n")
            await self._process.stdin.drain()
        async with asyncio.timeout(PATIENCE_S):
            await self._process.wait()
            await self._listening

    async def kill(self) -> None:
        """Whatever it does."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._listening


@contextlib.asynccontextmanager
async def kafka_streams(jars: Path, world: World) -> AsyncIterator[Java]:
    program = Path(__file__).with_name("SharedGroup.java")
    process = await asyncio.create_subprocess_exec(
        *(
            find(module=COMPILER).command,
            "-XX:TieredStopAtLevel=1",
            "-Xshare:auto",
            "-Xmx256m",
            "-cp",
            f"{jars}/*",
            str(program),
        ),
        *(world.cluster.bootstrap_servers, GROUP_ID, str(world.directory / "java"), "in", "out"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    java = Java(process)
    try:
        yield java
    finally:
        await java.kill()


def copier(world: World) -> Streams:
    topology = Topology()
    topology.stream("in", value=TEXT).map_values(lambda value: f"{value} by anabranch").to("out", value=TEXT)
    return world.instance(topology, application_server="anabranch.example:2", processing_guarantee="at_least_once")


def running(instance: Streams) -> set[str]:
    return {str(name) for name, task in instance.tasks.items() if task.state is State.RUNNING}


async def until(condition: Callable[[], bool], what: Callable[[], object]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 (what instances do is looked at from outside)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"gave up waiting: {what()}") from None


async def shared(java: Java, instance: Streams) -> None:
    """Wait until each has half of the tasks."""
    every = {f"0_{index}" for index in range(PARTITIONS)}
    await until(
        lambda: java.tasks | running(instance) == every and len(java.tasks) == len(running(instance)) == PARTITIONS / 2,
        lambda: f"java {java.state} {java.tasks}, anabranch {running(instance)}",
    )


async def spoken(world: World, version: int, members: int) -> None:
    """Wait until all members have joined with a version."""
    found: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while found != [version] * members:
            await asyncio.sleep(0.1)
            response: DescribeGroupsResponse = await world.admin.network.call_coordinator(
                GROUP_ID,
                DescribeGroupsRequest(groups=[GROUP_ID]),
                lambda answer: answer.groups[0].error_code,
                channel=GROUP,
            )
            told = [one.member_metadata for one in response.groups[0].members if one.member_metadata]
            found = [decode_subscription_info(decode_subscription(bytes(one)).user_data or b"").version for one in told]


async def send(world: World, numbers: range) -> None:
    for number in numbers:
        await world.producer.send("in", f"record {number}".encode(), b"key-%d" % number)
    await world.producer.flush()


async def copied(world: World, count: int) -> Counter[str]:
    """Wait until every record has been copied; how many by whom."""
    seen: dict[str, str] = {}
    async with (
        asyncio.timeout(PATIENCE_S),
        Consumer("out", bootstrap_servers=world.cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer,
    ):
        while len(seen) < count:
            for rows in (await consumer.getmany(timeout_ms=100)).values():
                for record in rows:
                    what, _, who = (record.value or b"").decode().partition(" by ")
                    seen[what] = who
    assert seen.keys() == {f"record {number}" for number in range(count)}
    return Counter(seen.values())


said: set[int] = set()
"""Which versions our instance has sent."""


def from_the_future(info: SubscriptionInfo) -> bytes:
    """What an instance of a later version would send: two numbers that are for all, and what only it understands."""
    said.add(info.version)
    if info.version <= LATEST_VERSION:
        return encode_subscription_info(info)
    return info.version.to_bytes(4, "big") + info.latest_supported_version.to_bytes(4, "big") + b"only from then on"


@pytest.mark.parametrize("latest_version", [7, 9, LATEST_VERSION, LATEST_VERSION + 1])
async def test_group_led_by_kafka_streams_is_shared(
    latest_version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = jars_or_skip()
    as_old = functools.partial(StreamsMember, latest_version=latest_version)
    monkeypatch.setattr(group_member, "StreamsMember", as_old)
    monkeypatch.setattr(streams_partition_assignor, "encode_subscription_info", from_the_future)
    said.clear()
    async with streams_world(tmp_path) as world, kafka_streams(jars, world) as java:
        await until(lambda: len(java.tasks) == PARTITIONS, lambda: f"java {java.state} {java.tasks}")
        async with copier(world) as instance:
            await shared(java, instance)
            await spoken(world, min(latest_version, LATEST_VERSION), 2)
            await send(world, range(200))
            by = await copied(world, 200)
            assert set(by) == {"java", "anabranch"}
            assert said == {latest_version, min(latest_version, LATEST_VERSION)}
        monkeypatch.setattr(group_member, "StreamsMember", StreamsMember)
        async with copier(world) as instance:
            await shared(java, instance)
            await spoken(world, LATEST_VERSION, 2)
            await send(world, range(200, 300))
            await copied(world, 300)
        await until(lambda: len(java.tasks) == PARTITIONS, lambda: f"java {java.state} {java.tasks}")
        await java.stop()


@pytest.mark.parametrize("latest_version", [7, LATEST_VERSION])
async def test_group_led_by_our_member_is_shared_with_kafka_streams(
    latest_version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars = jars_or_skip()
    monkeypatch.setattr(group_member, "StreamsMember", functools.partial(StreamsMember, latest_version=latest_version))
    async with streams_world(tmp_path) as world, copier(world) as instance:
        await until(lambda: len(running(instance)) == PARTITIONS, lambda: running(instance))
        async with kafka_streams(jars, world) as java:
            await shared(java, instance)
            await spoken(world, latest_version, 2)
            await send(world, range(200))
            by = await copied(world, 200)
            assert set(by) == {"java", "anabranch"}
            await java.stop()
        await until(lambda: len(running(instance)) == PARTITIONS, lambda: running(instance))
        await send(world, range(200, 300))
        await copied(world, 300)
