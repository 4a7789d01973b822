"""A stream joined with a table, and two tables joined, whose topics are resized one after the other.

The application counts records by key, puts beside each count the version of the key's row in the table, and sends that
on; the table sends each new version on, too. What is in the output is judged as one history: counts are 1, 2, 3, ...,
versions are 1, 2, 3, ..., and each record met exactly the version that was there then. That holds only if a key's
counts and its row are always in one place, and nobody works on them anywhere else. In every other schedule drained
partitions are removed soon, and now and then nothing is sent for a while, so that there are such.

Two tables are joined by an outer join: each change of a count or of a version is one result, beside what the other
table had then.

    python -m tests.sim.streaming --joins | --table-joins [SEED] [--schedules 300]
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

from anabranch import Producer
from anabranch.clients.metadata import Topic
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.clients.streams.serdes import JSON
from anabranch.clients.streams.topology import Topology
from tests.sim.clients import Operator
from tests.sim.streaming import INPUT, OUTPUT, RESIZED_S, TABLE, Feeder, Streaming

COUNTS: Final = ([4, 8, 3], [2, 5, 1, 4], [1, 2, 4], [3, 2, 1, 5], [1, 2, 1, 2], [2, 6, 2], [2, 4, 1, 2, 1])


def joining() -> Topology:
    """Counts, each with the row of its key."""
    topology = Topology()
    table = topology.table(TABLE, value=JSON)
    table.to(OUTPUT)
    topology.stream(INPUT).count("counts").join(table, lambda count, version: [count, version], left=True).to(OUTPUT)
    return topology


class TwoFeeder(Feeder):
    """Sends records, and now and then a new version of a row."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.begun: Counter[bytes] = Counter()
        self.versions: Counter[bytes] = Counter()

    async def send(self, producer: Producer) -> None:
        """A record, or a row."""
        if self.rng.random() < 0.7:
            await super().send(producer)
            return
        key = self.rng.choice(self.keys)
        self.begun[key] += 1
        self.outstanding += 1
        value = json.dumps(self.begun[key]).encode()
        stored = await producer.send(TABLE, value, key, timestamp_ms=self.clock_ms())
        stored.add_done_callback(partial(self._row_settled, key))

    def _row_settled(self, key: bytes, stored: asyncio.Future[RecordMetadata]) -> None:
        self.outstanding -= 1
        if not stored.cancelled():
            stored.result()
            self.versions[key] += 1


class ThoroughOperator(Operator):
    """Takes a topic through every one of its counts: to leave one out is to resize it in another way."""

    def is_done(self, topic: Topic, count: int) -> bool:
        """Not because there were once so many."""
        steps = 0 if topic.lineage is None else len(topic.lineage.history) - 1
        return super().is_done(topic, count) and steps > self.resized


class Joins(Streaming):
    """One such schedule."""

    topology = staticmethod(joining)
    feeder_class: type[Feeder] = TwoFeeder
    feeder: Any
    table: Operator
    operator_class: type[ThoroughOperator] = ThoroughOperator

    def __init__(self, seed: int, directory: Path) -> None:
        super().__init__(seed, directory)
        counts = self.rng.choice(COUNTS)
        self.operator = self.operator_class(self.cluster, counts, pause_s=3.0, topic=INPUT)
        self.table = self.operator_class(self.cluster, counts, pause_s=3.0, topic=TABLE, name="operator of the table")
        first, second = self.rng.sample((self.operator, self.table), 2)
        first.pause_s, second.pause_s = self.rng.choice(((1.0, 3.0), (1.5, 1.5), (0.5, 5.0), (0.0, 3.0)))
        self.rows: Counter[bytes] = Counter()

    async def _happen(self) -> None:
        self.feeder.resting = self.rng.random() < 0.15
        await super()._happen()

    async def _rest(self) -> None:
        steps = len(self.operator.counts) - 1
        await self.cluster.until(
            lambda: self.operator.resized == self.table.resized == steps, RESIZED_S, "both topics are resized"
        )
        await super()._rest()

    def _complete(self, counted: Counter[bytes]) -> bool:
        return super()._complete(counted) and self.rows == self.feeder.versions

    def _judge(self, key: bytes, value: Any, counted: Counter[bytes]) -> None:
        if isinstance(value, int):
            if value != self.rows[key] + 1:
                self.violations.append(f"{key.decode()} gets version {value} after {self.rows[key]}")
            self.rows[key] = value
            return
        count, version = value
        super()._judge(key, count, counted)
        if (version or 0) != self.rows[key]:
            self.violations.append(f"{key.decode()}: record {count} met version {version}, not {self.rows[key]}")


def joining_tables() -> Topology:
    """Counts and rows, in one table."""
    topology = Topology()
    rows = topology.table(TABLE, value=JSON)
    counts = topology.stream(INPUT).count("counts")
    counts.join_table(rows, lambda count, version: [count, version], store="pairs", outer=True).to(OUTPUT)
    return topology


class TableJoins(Joins):
    """One such schedule with two tables."""

    topology = staticmethod(joining_tables)

    def _judge(self, key: bytes, value: Any, counted: Counter[bytes]) -> None:
        before = counted[key], self.rows[key]
        after = value[0] or 0, value[1] or 0
        if after not in ((before[0] + 1, before[1]), (before[0], before[1] + 1)):
            self.violations.append(f"{key.decode()}: count and version {after} after {before}")
        counted[key], self.rows[key] = after
