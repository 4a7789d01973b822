"""Two streams joined within a window of time, whose topics are resized one after the other.

The schedules are those of `--joins`. An outer join pairs the records of two topics; some records are late. When all is
processed, records from the far future close all windows; then instances die, the topics are resized once more, and each
key gets a record from the past in both topics. Those two are too late to be joined: they are if a task has forgotten
stream time, or has not taken it over with the keys.
Windows that are longer than a schedule are open until then: the results are what follows from the input alone. Short
ones close all the time, and a late record may have a result alone before it is joined, as in Kafka Streams; then
no result may come twice or join what is too far apart, and each record has one.

    python -m tests.sim.streaming --stream-joins [SEED] [--schedules 300]
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from anabranch import Producer
from anabranch.clients.streams.serdes import JSON
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.windows import JoinWindows
from tests.sim.loop import Process
from tests.sim.streaming import INPUT, OUTPUT, TABLE, Feeder
from tests.sim.streaming_joins import Joins, ThoroughOperator

LONG_MS: Final = 600_000
SHORT_MS: Final = 700
FAR_MS: Final = 100 * LONG_MS
LATE: Final = 0.2
LATE_MS: Final = 3000
QUIET_S: Final = 5
PHASE_S: Final = 150
TOPICS: Final = (INPUT, TABLE)
Result = tuple[int | None, int | None]
"""The numbers of the records of both sides."""


class PairFeeder(Feeder):
    """Sends numbered records to both topics. Those of the far future have negative numbers."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.records: dict[int, tuple[int, bytes, int]] = {}
        """Number -> side (the index of its topic), key and timestamp."""
        self.phase = self.sent_phase = 0
        """What is sent after the end: the far future, then the past; and what has been."""
        self.late: set[Result] = set()

    async def run(self) -> None:
        first_ms = self.clock_ms()
        await super().run()
        async with Producer(self.cluster.bootstrap, client_id=self.identity, rng=self.chance("last")) as producer:
            await self._when(1)
            for number, key in enumerate(self.keys):
                for side, topic in enumerate(TOPICS):
                    value = b"%d" % (-1 - 2 * number - side)
                    await producer.send_and_wait(topic, value, key, timestamp_ms=first_ms + FAR_MS)
            self.sent_phase = 1
            await self._when(2)
            for key in self.keys:
                for side, topic in enumerate(TOPICS):
                    number = self._number(side, key, first_ms)
                    self.late.add((None, number) if side else (number, None))
                    await producer.send_and_wait(topic, b"%d" % number, key, timestamp_ms=first_ms)
            self.sent_phase = 2

    async def _when(self, phase: int) -> None:
        while self.phase < phase:
            await asyncio.sleep(0.05)

    async def send(self, producer: Producer) -> None:
        """A record of either topic."""
        side, key, timestamp_ms = self.rng.randrange(2), self.rng.choice(self.keys), self.clock_ms()
        if self.rng.random() < LATE:
            timestamp_ms -= self.rng.randrange(LATE_MS)
        number = self._number(side, key, timestamp_ms)
        self.outstanding += 1
        stored = await producer.send(TOPICS[side], b"%d" % number, key, timestamp_ms=timestamp_ms)
        stored.add_done_callback(partial(self._settled, key))

    def _number(self, side: int, key: bytes, timestamp_ms: int) -> int:
        self.records[len(self.records)] = side, key, timestamp_ms
        return len(self.records) - 1


class HeldOperator(ThoroughOperator):
    """Resizes to the last count when it is told to."""

    released = False

    async def resize(self, count: int) -> None:
        while self.resized == len(self.counts) - 2 and not self.released:
            await asyncio.sleep(0.05)
        await super().resize(count)


class StreamJoins(Joins):
    """One such schedule."""

    feeder_class = PairFeeder
    feeder: PairFeeder
    operator_class = HeldOperator
    operator: HeldOperator
    table: HeldOperator

    def __init__(self, seed: int, directory: Path) -> None:
        super().__init__(seed, directory)
        rng = self.rng
        self.is_long = rng.random() < 0.6
        keys, grace_ms = rng.choice([60, 150]) if self.is_long else rng.choice([5, 20]), rng.choice([0, SHORT_MS])
        self.feeder.keys = [b"key-%d" % number for number in range(keys)]
        if self.is_long:
            self.windows = JoinWindows(LONG_MS, LONG_MS, grace_ms)
        else:
            self.windows = JoinWindows(rng.choice([0, 200, 1000]), rng.choice([50, 200, 1000]), grace_ms)
        self.results: set[Result] = set()
        self.newest_s = 0.0
        """When the newest result was read."""
        for instance in self.instances:
            instance.topology = self.pairing

    def pairing(self) -> Topology:
        """Pairs, and records that have no other."""
        topology = Topology()
        left, right = (topology.stream(topic, value=JSON) for topic in TOPICS)
        pairs = left.join_within(right, self.windows, lambda one, other: [one, other], store="pairs", outer=True)
        pairs.to(OUTPUT)
        return topology

    async def _rest(self) -> None:
        reading = self.cluster.loop.spawn(Process("judge", "judge"), self._read(), "reading the output")
        feeder, operators = self.feeder, (self.operator, self.table)
        pairs = self._pairs()
        await self._reach("all pairs are made", lambda: self._are_made(pairs))
        feeder.phase = 1
        await self._reach("the windows are closed", lambda: feeder.sent_phase == 1 and self._is_complete())
        for instance in self.rng.sample(self.instances, 2):
            instance.kill()
            instance.start()
        for operator in operators:
            operator.released = True
        await self._reach("both are resized", lambda: all(one.resized == len(one.counts) - 1 for one in operators))
        feeder.phase = 2
        await self._reach("the output is complete", lambda: feeder.sent_phase == 2 and reading.done())
        if reading.done():
            reading.result()
        else:
            missing = sorted(map(str, self._expected() - self.results))
            self.violations.append(f"{len(missing)} results are missing: {missing[:5]}")
            reading.cancel()
        for instance in self.instances:
            await self._stopped(instance)

    async def _reach(self, what: str, reached: Callable[[], bool]) -> None:
        await self.cluster.until(reached, PHASE_S, what)

    def _are_made(self, pairs: set[Result]) -> bool:
        if self.is_long:
            return pairs <= self.results
        return self.cluster.now() > self.newest_s + QUIET_S

    def _pairs(self) -> set[Result]:
        """The pairs that follow from what was sent."""
        late = {number for result in self.feeder.late for number in result}
        rows = [(number, *row) for number, row in self.feeder.records.items() if number not in late]
        left, right = ([row for row in rows if row[1] == side] for side in (0, 1))
        return {
            (one, other)
            for one, _, key, one_ms in left
            for other, _, other_key, other_ms in right
            if key == other_key and -self.windows.before_ms <= other_ms - one_ms <= self.windows.after_ms
        }

    def _expected(self) -> set[Result]:
        """The results that follow from what was sent."""
        pairs = self._pairs()
        paired = {number for pair in pairs for number in pair}
        alone: set[Result] = {
            (None, number) if side else (number, None)
            for number, (side, _, _) in self.feeder.records.items()
            if number not in paired
        }
        return pairs | alone

    def _is_complete(self) -> bool:
        if self.is_long:
            return self._expected() <= self.results
        return self.feeder.records.keys() <= {number for result in self.results for number in result}

    def _complete(self, counted: Counter[bytes]) -> bool:
        quiet = self.cluster.now() > self.newest_s + QUIET_S
        return self.feeder.sent_phase == 2 and quiet and self._is_complete()

    def _judge(self, key: bytes, value: Any, counted: Counter[bytes]) -> None:
        left, right = result = value[0], value[1]
        if any(number is not None and number < 0 for number in result):
            return
        self.cluster.fired["pairs" if None not in result else "records without a pair"] += 1
        self.newest_s = self.cluster.now()
        if result in self.results:
            self.violations.append(f"{key.decode()} has the result {json.dumps(value)} twice")
        if self.is_long and result not in self._expected():
            self.violations.append(f"{key.decode()} has the result {json.dumps(value)}, which does not follow")
        elif None not in result and result not in self._pairs():
            self.violations.append(f"{key.decode()} has the pair {left}, {right}, which is too far apart or too late")
        self.results.add(result)
