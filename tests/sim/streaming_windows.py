"""Windows of time in a Streams application: each window's result comes once, and has all of its records.

The schedules are those of `streaming`. The application counts the records of each key in tumbling windows, in sliding
ones and in sessions, and sends the result of each when it has closed. Some records are late. At the end a record from
the far future closes all windows.
With a long grace period no record is late: the results are then what follows from the input alone. With a short one,
windows close all the time, some before their last record; then none may have a second result, or too many records,
and each record is counted in its tumbling window, or sent as a late one, once.

    python -m tests.sim.streaming --windows [SEED] [--schedules 300]
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from anabranch import Producer
from anabranch.clients.streams.serdes import Serde
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.windowed_aggregation import Emit, LateTopic
from anabranch.clients.streams.windows import SessionWindows, SlidingWindows, TimeWindows, Windowed
from tests.sim.streaming import INPUT, OUTPUT, Feeder, Streaming

LONG_MS: Final = 600_000
SHORT_MS: Final = 700
FAR_MS: Final = 100 * LONG_MS
QUIET_S: Final = 5
LATE: Final = 0.2
LATE_MS: Final = 8000


ONCE: Final = Serde(lambda value: b"1", lambda raw: raw)
"""How a late record is sent: as a count of its key."""


class TimedFeeder(Feeder):
    """Remembers when its records are."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.times_ms: defaultdict[bytes, list[int]] = defaultdict(list)

    async def run(self) -> None:
        await super().run()
        async with Producer(self.cluster.bootstrap, client_id=self.identity, rng=self.chance("last")) as producer:
            for key in self.keys:
                await producer.send_and_wait(INPUT, b"", key, timestamp_ms=self.clock_ms() + FAR_MS)

    async def send(self, producer: Producer) -> None:
        key, timestamp_ms = self.rng.choice(self.keys), self.clock_ms()
        if self.rng.random() < LATE:
            timestamp_ms -= self.rng.randrange(LATE_MS)
        self.outstanding += 1
        stored = await producer.send(INPUT, b"", key, timestamp_ms=timestamp_ms)
        stored.add_done_callback(partial(self._timed, key, timestamp_ms))

    def _timed(self, key: bytes, timestamp_ms: int, stored: asyncio.Future[Any]) -> None:
        self._settled(key, stored)
        if not stored.cancelled():
            self.times_ms[key].append(timestamp_ms)


class Windows(Streaming):
    """One such schedule."""

    feeder_class = TimedFeeder
    feeder: TimedFeeder

    def __init__(self, seed: int, directory: Path, *, resizes: bool = True) -> None:
        super().__init__(seed, directory, resizes=resizes)
        rng = self.rng
        self.grace_ms = rng.choice([LONG_MS, LONG_MS, SHORT_MS])
        self.tumbling = TimeWindows(rng.choice([200, 1000, 5000]), grace_ms=self.grace_ms)
        self.sliding = SlidingWindows(rng.choice([20, 100, 300]), grace_ms=self.grace_ms)
        self.sessions = SessionWindows(rng.choice([50, 300, 1000]), grace_ms=self.grace_ms)
        self.results: dict[bytes, int] = {}
        self.accounted: Counter[bytes] = Counter()
        """The records of each key that a tumbling window has counted, or that came as late ones."""
        self.newest_s = 0.0
        """When the newest result was read."""
        for instance in self.instances:
            instance.topology = self.windowed

    def windowed(self) -> Topology:
        """Count in windows of all kinds."""
        topology = Topology()
        records = topology.stream(INPUT)
        for name, windows in self.kinds:
            late = LateTopic(OUTPUT, ONCE) if name == "tumbling" else None
            counts = records.windowed_by(windows, emit=Emit.ON_WINDOW_CLOSE, late=late).count(name)
            counts.map(partial(named, name)).to(OUTPUT)
        return topology

    @property
    def kinds(self) -> tuple[tuple[str, TimeWindows | SlidingWindows | SessionWindows], ...]:
        return ("tumbling", self.tumbling), ("sliding", self.sliding), ("sessions", self.sessions)

    @cached_property
    def _expected(self) -> Counter[bytes]:
        """The results by what was sent: all of it, when results are read."""
        expected: Counter[bytes] = Counter()
        for key, times_ms in self.feeder.times_ms.items():
            for timestamp_ms in times_ms:
                (window,) = self.tumbling.of(key, timestamp_ms)
                expected[named("tumbling", window, 0)[0]] += 1
            for window, records in slid(key, sorted(times_ms), self.sliding.difference_ms):
                expected[named("sliding", window, 0)[0]] += records
            for session in bursts(sorted(times_ms), self.sessions.gap_ms):
                expected[named("sessions", Windowed(key, session[0], session[-1]), 0)[0]] += len(session)
        return expected

    def _complete(self, counted: Counter[bytes]) -> bool:
        if self.grace_ms == LONG_MS:
            return self._expected.keys() <= self.results.keys()
        return self.accounted == self.feeder.sent and self.cluster.now() > self.newest_s + QUIET_S

    def _judge(self, key: bytes, count: int, counted: Counter[bytes]) -> None:
        kind, _, own = key.partition(b"@")[0].rpartition(b" ")
        if kind in (b"tumbling", b""):
            self.accounted[own] += count
            if self.accounted[own] > self.feeder.sent[own]:
                self.violations.append(f"{own.decode()} has more records in windows, or late, than were sent")
        if not kind:
            self.cluster.fired["late records"] += 1
            self.newest_s = self.cluster.now()
            if self.grace_ms == LONG_MS:
                self.violations.append(f"{own.decode()} has a late record in spite of the long grace period")
            return
        self.cluster.fired["windows closed"] += 1
        sent, name = self._expected[key], key.decode()
        if key in self.results:
            self.violations.append(f"{name} has a second result: {count} after {self.results[key]}")
        if self.grace_ms == LONG_MS and count != sent:
            self.violations.append(f"{name} has the result {count}, and {sent} records were sent")
        if not key.startswith(b"sessions") and count > sent:
            self.violations.append(f"{name} has the result {count}, and only {sent} records were sent")
        self.results[key], self.newest_s = count, self.cluster.now()


def named(kind: str, window: Any, count: int) -> tuple[bytes, int]:
    """A result under a key that says all of its window."""
    return b"%s %s@%d-%d" % (kind.encode(), *window), count


def slid(key: bytes, times_ms: list[int], difference_ms: int) -> Iterator[tuple[Windowed, int]]:
    """The sliding windows of ascending times, each with its number of records."""
    for timestamp_ms in set(times_ms):
        for start_ms in (timestamp_ms - difference_ms, timestamp_ms + 1):
            end_ms = start_ms + difference_ms
            records = bisect_right(times_ms, end_ms) - bisect_left(times_ms, start_ms)
            # A left window may be a right one, too.
            if records and (start_ms <= timestamp_ms or end_ms not in times_ms):
                yield Windowed(key, start_ms, end_ms), records


def bursts(times_ms: list[int], gap_ms: int) -> list[list[int]]:
    """Divide ascending times into sessions."""
    found: list[list[int]] = []
    for timestamp_ms in times_ms:
        if found and timestamp_ms - found[-1][-1] <= gap_ms:
            found[-1].append(timestamp_ms)
        else:
            found.append([timestamp_ms])
    return found
