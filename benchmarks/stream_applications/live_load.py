"""A steady load on a few keys of an application with much state, and the longest time without output of each key.

The gaps are those between the broker's timestamps of two outputs of a key, so output topics need LogAppendTime.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.clients.group_admin import describe_group
from benchmarks.stream_applications.peers import StreamsPeer, StreamsProcess, remove_state
from benchmarks.stream_applications.truth import COUNTS, SPAN_MS, CountTruth, Records, WrongOutput

LIVE: Final = 48
ROUNDS_PER_S: Final = 20
"""The records per second of each live key: gaps below 50 ms are invisible."""
PARTITIONS: Final = 4
COMMIT_MS: Final = 100
QUIET_S: Final = 180.0
STABLE_S: Final = 2.0
ASSIGNED_S: Final = 300.0
LOOK_S: Final = 0.25


class LiveApplication:
    """An application that counts by key, its instances, its input and its output."""

    def __init__(self, peer: StreamsPeer, bootstrap: str, directory: Path, keys: int, guarantee: str, standbys: int):
        self.peer, self.keys = peer, keys
        self.name = f"live-{''.join(filter(str.isalnum, peer.name.lower()))}-{guarantee}-{directory.name}"
        self.source, self.results = f"{self.name}-in", f"{self.name}-out"
        self._bootstrap, self._directory = bootstrap, directory
        self._settings = [guarantee, str(COMMIT_MS), str(standbys), self.source, f"{self.name}-unused", self.results]
        self.records = Records(keys, keys, int(time.time() * 1000) - SPAN_MS)
        self.truth = CountTruth(self.records)
        self.times_ms: dict[bytes, list[int]] = defaultdict(list)
        """When each key had output, since records come steadily."""
        self._fed_since_ms = math.inf
        self._rounds = itertools.count(1)
        self._running: list[StreamsProcess] = []

    async def start(self, instance: str, *, keep_state: bool = False) -> StreamsProcess:
        """Start an instance, with an empty state directory unless it keeps the one that it had."""
        state = self._directory / instance
        if not keep_state:
            remove_state(state)
        words = [COUNTS, self._bootstrap, self.name, str(state), *self._settings]
        process = StreamsProcess(self.peer, words, self._directory / f"{instance}.log")
        self._running.append(process)
        return process

    async def stop(self, process: StreamsProcess) -> None:
        """End an instance with SIGTERM."""
        self._running.remove(process)
        await asyncio.to_thread(process.stop)

    async def stop_all(self) -> None:
        """End all instances."""
        await asyncio.gather(*map(self.stop, tuple(self._running)))

    async def create_topics(self, admin: Admin) -> None:
        """Create input and output."""
        stamped = {"message.timestamp.type": "LogAppendTime"}
        await admin.create_topics(
            [
                NewTopic(name=self.source, partitions=PARTITIONS, replication_factor=1),
                NewTopic(name=f"{self.name}-unused", partitions=PARTITIONS, replication_factor=1),
                NewTopic(name=self.results, partitions=PARTITIONS, replication_factor=1, configs=stamped),
            ]
        )
        for topic in (self.source, f"{self.name}-unused", self.results):
            await admin.wait_for_topic(topic)

    async def fill(self, producer: Producer) -> None:
        """Store a record of each key."""
        await self._send(producer, range(self.keys))
        await producer.flush()

    async def send_round(self, producer: Producer) -> None:
        """Send a record of each live key."""
        first = next(self._rounds) * self.keys
        stride = self.keys // LIVE
        await self._send(producer, range(first, first + stride * LIVE, stride))

    async def _send(self, producer: Producer, sequences: range) -> None:
        self.truth.expect(sequences)
        for one in sequences:
            await producer.send(
                self.source, b"%d" % one, self.records.key(one), timestamp_ms=self.records.timestamp_ms(one)
            )

    @asynccontextmanager
    async def feeding(self, producer: Producer) -> AsyncIterator[None]:
        """Send rounds steadily while the block runs."""
        self._fed_since_ms = time.time() * 1000
        ending = asyncio.Event()
        feeder = asyncio.create_task(self._feed(producer, ending))
        try:
            yield
        finally:
            ending.set()
            await feeder
            await producer.flush()

    async def _feed(self, producer: Producer, ending: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while not ending.is_set():
            await self.send_round(producer)
            due_s += 1 / ROUNDS_PER_S
            await asyncio.sleep(max(0.0, due_s - loop.time()))

    async def drain(self, consumer: Consumer) -> None:
        """Read output until every count is there. Raises WrongOutput if it is wrong, or does not come."""
        loop = asyncio.get_running_loop()
        heard_s = loop.time()
        while self.truth.left:
            batches = await consumer.getmany(timeout_ms=20)
            for record in itertools.chain.from_iterable(batches.values()):
                assert record.key is not None and record.value is not None
                self.truth.take(record.key, record.value)
                if record.timestamp >= self._fed_since_ms:
                    self.times_ms[record.key].append(record.timestamp)
            heard_s = loop.time() if batches else heard_s
            ended = next((one for one in self._running if one.has_ended), None)
            if ended is not None or loop.time() > heard_s + QUIET_S:
                process = ended or self._running[0]
                raise WrongOutput(f"{process.name}: {self.truth.left} results are missing: {process.log_tail()}")

    @asynccontextmanager
    async def output(self) -> AsyncIterator[Consumer]:
        """A reader of the whole output."""
        async with Consumer(
            self.results,
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            ordered_delivery=False,
            max_poll_records=5000,
        ) as consumer:
            yield consumer

    async def until_assigned(self, admin: Admin, instances: int, partitions: int) -> bool:
        """Wait until so many instances share all partitions, and stay so. Returns whether they came to that."""

        def settled(shares: Sequence[set[int]]) -> bool:
            return len(shares) == instances and all(shares) and set().union(*shares) >= set(range(partitions))

        return await self._until(admin, settled)

    async def _until(self, admin: Admin, settled: Callable[[Sequence[set[int]]], bool]) -> bool:
        loop = asyncio.get_running_loop()
        started_s, settled_s = loop.time(), 0.0
        while loop.time() < started_s + ASSIGNED_S:
            group = await describe_group(admin.network, self.name)
            shares = [
                {place.partition for place in member.partitions if place.topic == self.source}
                for member in group.members
            ]
            settled_s = (settled_s or loop.time()) if settled(shares) else 0.0
            if settled_s and loop.time() > settled_s + STABLE_S:
                return True
            await asyncio.sleep(LOOK_S)
        return False


def longest_gaps_ms(times_ms: dict[bytes, list[int]], since_ms: int, until_ms: float = float("inf")) -> list[int]:
    """The longest gap of each key between two outputs, of those that end after `since_ms` and begin before `until_ms`.

    Keys without two outputs there are left out: they are not live.
    """
    found = []
    for times in times_ms.values():
        gaps = [
            after - before
            for before, after in itertools.pairwise(sorted(times))
            if after >= since_ms and before <= until_ms
        ]
        if gaps:
            found.append(max(gaps))
    return found
