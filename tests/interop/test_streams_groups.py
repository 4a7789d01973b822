"""Kafka Streams 4.2 in a streams group: counts stay right while members and brokers die.

Two instances count words exactly once, each with copies of the other's state. One is killed, and then the coordinator
of the group. The jars are not part of this project: point ANABRANCH_KAFKA_4_JARS at a directory that Maven has filled:

    mvn dependency:copy-dependencies -DoutputDirectory=...    # of a project that depends on kafka-streams 4.2
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import pytest

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.cluster.in_process import Cluster
from anabranch.spark_jobs import java

pytestmark = [pytest.mark.interop, pytest.mark.kafka_jars]

VARIABLE: Final = "ANABRANCH_KAFKA_4_JARS"
DIRECTORY: Final = os.environ.get(VARIABLE, "")
JARS: Final = list(Path(DIRECTORY).glob("kafka-streams-4.[2-9]*.jar")) if DIRECTORY else []
PROGRAM: Final = Path(__file__).with_name("StreamsMembers.java")
PATIENCE_S: Final = 120.0
TASKS: Final = {f"{part}_{index}" for part in (0, 1) for index in range(4)}
LINES: Final = 400
"""Of each of three parts."""
QUICK: Final = {
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "100",
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.num.standby.replicas": "1",
}


class Program:
    """A Java program, and the lines that it has written."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self.ended = False
        self._changed = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            await self._hear(line.decode().rstrip())
        self.ended = True
        await self._hear()

    async def _hear(self, *lines: str) -> None:
        async with self._changed:
            self.lines += lines
            self._changed.notify_all()

    async def until(self, good: Callable[[list[str]], bool]) -> list[str]:
        """Its last line, in words, once that is good."""

        def found() -> bool:
            assert not self.ended, self.lines[-20:]
            return bool(self.lines) and good(self.lines[-1].split())

        try:
            async with asyncio.timeout(PATIENCE_S), self._changed:
                await self._changed.wait_for(found)
        except TimeoutError:
            raise AssertionError(self.lines[-20:]) from None
        return self.lines[-1].split()

    async def end(self) -> list[str]:
        """Stop it by a line; return its whole output."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        async with asyncio.timeout(PATIENCE_S):
            await self._reading
            await self.process.wait()
        return self.lines


@contextlib.asynccontextmanager
async def running(*words: str | Path) -> AsyncIterator[Program]:
    command = [java.find(module=java.COMPILER).command, "-Xmx256m", "-XX:TieredStopAtLevel=1"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("-cp", f"{DIRECTORY}/*", str(PROGRAM), *map(str, words)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    program = Program(process)
    try:
        yield program
    finally:
        if process.returncode is None:
            process.kill()
        await program._reading
        await process.wait()


async def run_program(*words: str) -> list[str]:
    async with running(*words) as program:
        return await program.end()


def active(line: list[str]) -> set[str]:
    return {one for one in line[1].split(",") if "_" in one} if line[0] == "RUNNING" else set()


def shared(line: list[str]) -> bool:
    """Whether an instance runs half of the tasks, copies the state of the other's, and knows both instances."""
    copies = {one for one in line[2].split(",") if "_" in one} if len(line) > 2 else set()
    others = {one for one in TASKS - active(line) if one.startswith("1")}
    return len(active(line)) == len(TASKS) // 2 and copies == others and line[3] == "2"


async def send(servers: str, part: int, words: Counter[str]) -> None:
    async with Producer(servers, enable_idempotence=True) as producer:
        for number in range(LINES):
            line = f"all part-{part} word-{number % 7}"
            words.update(line.split())
            await producer.send("lines", line.encode(), b"%d" % number)
        await producer.flush()


async def counted(servers: str, wanted: Counter[str]) -> dict[str, list[int]]:
    """The counts of each word, one after the other, until the last ones are as wanted or nothing more comes."""
    counts: dict[str, list[int]] = {}
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    async with Consumer("counts", bootstrap_servers=servers, **settings) as consumer:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while {word: row[-1] for word, row in counts.items()} != wanted:
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        for one in records:
                            counts.setdefault((one.key or b"").decode(), []).append(int(one.value or b""))
    return counts


async def test_words_are_counted_exactly_while_instance_and_coordinator_die(tmp_path: Path) -> None:
    if not JARS or java.why_missing(module=java.COMPILER):
        pytest.skip(f"NOT TRIED WITH KAFKA STREAMS: {VARIABLE}={DIRECTORY!r} has no kafka-streams 4.2, or no JDK")
    words: Counter[str] = Counter()
    async with Cluster(3, kafka="4.2", properties=QUICK) as cluster, contextlib.AsyncExitStack() as stack:
        servers = cluster.bootstrap_servers
        async with Admin(servers) as admin:
            for name, partitions in (("lines", 4), ("counts", 1)):
                await admin.create_topics([NewTopic(name=name, partitions=partitions, replication_factor=3)])
                await admin.wait_for_topic(name)
        one, two = [
            await stack.enter_async_context(running("count", servers, "app", tmp_path / name, "lines", "counts"))
            for name in ("one", "two")
        ]
        halves = [active(await instance.until(shared)) for instance in (one, two)]
        assert halves[0] | halves[1] == TASKS
        await send(servers, 0, words)

        lines = await run_program("describe", servers, "app")
        assert "listed app Streams streams Stable" in lines and "group Stable topology 0" in lines
        assert "subtopology 1 reads [][app-words-repartition] writes [] keeps [app-counts-changelog]" in lines
        assert sum(line.startswith("member true ") for line in lines) == 2
        assert await run_program("delete", servers, "app") == ["refused GroupNotEmptyException"]

        one.process.kill()
        await send(servers, 1, words)
        await two.until(lambda line: active(line) == TASKS)
        coordinator = next(node for node in cluster.nodes if "app" in cluster.nodes[node].services.groups.table.slots)
        await cluster.nodes.pop(coordinator).stop(controlled=False)
        await send(servers, 2, words)
        counts = await counted(servers, words)
        assert {word: row[-1] for word, row in counts.items()} == words
        assert all(row == sorted(set(row)) for row in counts.values()), "no count twice, none taken back"

        assert (await two.end())[-1] == "closed"
        assert "group Empty topology 0" in await run_program("describe", servers, "app")
        assert (await run_program("delete", servers, "app"))[0].startswith("left ")
        assert not any("app" in node.services.groups.table.slots for node in cluster.nodes.values())
