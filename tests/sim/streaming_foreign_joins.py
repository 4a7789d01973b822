"""Two tables joined by a foreign key, through crashes, while the topic of each is resized alone.

Rows of either table are set and deleted. A left row names a right one or none, and may name another one later. What is
expected follows from the input alone: in the end the results are those of the last rows of both tables. Before, a
result must be that of two rows which were once sent; and no result of an older row, left or right, comes after that of
a newer one.

    python -m tests.sim.streaming --foreign-joins [SEED] [--schedules 300]
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

from anabranch import Producer
from anabranch.clients.streams.serdes import JSON
from anabranch.clients.streams.topology import Topology
from tests.sim.clients import Operator
from tests.sim.streaming import INPUT, OUTPUT, RESIZED_S, TABLE, WIDTHS, Feeder, Streaming

SETTLED_S: Final = 10.0
"""How long the results must stay as they are expected: not everything may be processed when they first are."""


class ForeignFeeder(Feeder):
    """Sets and deletes rows of both tables; each row has a number of its own."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.rows = [b"row-%d" % number for number in range(3)]
        self.lefts: dict[bytes, list[str | None]] = {key: [] for key in self.keys}
        """The right row that each version of a left row names."""
        self.rights: Counter[bytes] = Counter()
        """The version of each right row."""
        self.last: dict[tuple[str, bytes], Any] = {}
        """The value of each row by topic and key, None for a deleted one."""

    async def send(self, producer: Producer) -> None:
        """A row of one of the tables; now and then it changes again before anything can follow from that."""
        topic = self.rng.choice([INPUT, INPUT, TABLE])
        key = self.rng.choice(self.keys if topic == INPUT else self.rows)
        for _ in range(self.rng.choice([1, 1, 3])):
            value = None if self.rng.random() < 0.3 else self._next(topic, key)
            self.last[topic, key] = value
            self.outstanding += 1
            raw = None if value is None else json.dumps(value).encode()
            stored = await producer.send(topic, raw, key, timestamp_ms=self.clock_ms())
            stored.add_done_callback(partial(self._settled, key))

    def _next(self, topic: str, key: bytes) -> Any:
        if topic == TABLE:
            self.rights[key] += 1
            return self.rights[key]
        self.lefts[key].append(self.rng.choice([None, *(row.decode() for row in self.rows)]))
        return [len(self.lefts[key]), self.lefts[key][-1]]


class ForeignJoins(Streaming):
    """One such schedule."""

    feeder_class: type[Feeder] = ForeignFeeder
    feeder: Any
    table: Operator

    def __init__(self, seed: int, directory: Path) -> None:
        super().__init__(seed, directory)
        widths = self.rng.choice([one for one in WIDTHS if len(one) > 1])
        self.table = Operator(self.cluster, widths, pause_s=2.0, topic=TABLE, name="operator of the table")
        self.left = self.rng.random() < 0.5
        self.results: dict[bytes, Any] = {}
        self.met: Counter[tuple[bytes, str]] = Counter()
        """The version of the left row of each key, and of the right rows that it was joined with."""
        self.expected_since_s: float | None = None

    def topology(self) -> Topology:  # type: ignore[override]
        """Left rows with the version of the right row that they name."""
        topology = Topology()
        table, other = topology.table(INPUT, value=JSON), topology.table(TABLE, value=JSON)
        table.join_foreign(
            other,
            lambda key, row: None if row[1] is None else row[1].encode(),
            lambda row, version: [*row, version],
            store="joined",
            left=self.left,
        ).to(OUTPUT)
        return topology

    async def _happen(self) -> None:
        self.feeder.resting = self.rng.random() < 0.15
        await super()._happen()

    async def _rest(self) -> None:
        for one in (self.operator, self.table):
            await self.cluster.until(
                lambda one=one: one.resized == len(one.counts) - 1, RESIZED_S, f"{one.topic} is resized"
            )
        await super()._rest()
        self.cluster.fired["resizes of the table"] += self.table.resized

    def _expected(self) -> dict[bytes, Any]:
        expected = {}
        for key in self.feeder.keys:
            row = self.feeder.last.get((INPUT, key))
            if row is None:
                continue
            version = None if row[1] is None else self.feeder.last.get((TABLE, row[1].encode()))
            if version is not None or self.left:
                expected[key] = [*row, version]
        return expected

    def _complete(self, counted: Counter[bytes]) -> bool:
        if {key: one for key, one in self.results.items() if one is not None} != self._expected():
            self.expected_since_s = None
            return False
        if self.expected_since_s is None:
            self.expected_since_s = self.cluster.now()
        return self.cluster.now() >= self.expected_since_s + SETTLED_S

    def _judge(self, key: bytes, value: Any, counted: Counter[bytes]) -> None:
        self.results[key] = value
        if value is None:
            self.cluster.fired["deleted results"] += 1
            return
        self.cluster.fired["results"] += 1
        number, row, version = value
        if self.feeder.lefts[key][number - 1] != row:
            self.violations.append(f"{key.decode()}: version {number} has never named {row}")
        if version is not None and (row is None or version > self.feeder.rights[row.encode()]):
            self.violations.append(f"{key.decode()}: {row} has never had version {version}")
        for pair, met in (((key, ""), number), ((key, row), version)):
            if met is not None and met < self.met[pair]:
                self.violations.append(f"{key.decode()}: {value} after {self.met[pair]} of {pair[1] or 'itself'}")
            self.met[pair] = met or self.met[pair]
