"""Records joined with a global table, through crashes, while the topic of the table is split and merged.

Each record names a row, of any key. In one life of an instance the versions of a row that records meet must never fall,
and none may be older than what was stored before the instance started: tasks run only when the table is full, also
where an instance starts cut off from a broker. That holds only if the rows of a key are applied in their order, also
where a resize moves the key to another partition while the instance reads or is down. In the end every instance has the
newest version of every row.

    python -m tests.sim.streaming --global-tables [SEED] [--schedules 300]
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

from anabranch import Producer, RangeQuery, StreamsError
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.clients.streams.serdes import JSON
from anabranch.clients.streams.topology import Topology
from tests.sim.clients import Operator
from tests.sim.streaming import INPUT, OUTPUT, RESIZED_S, TABLE, WIDTHS, Feeder, Instance, Streaming

STORE: Final = "rows"


class RowsFeeder(Feeder):
    """Sends records that name a row, and new versions of rows."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.rows = [b"row-%d" % number for number in range(10)]
        self.numbers: Counter[bytes] = Counter()
        self.begun: Counter[bytes] = Counter()
        self.versions: Counter[bytes] = Counter()
        """The version of each row that is stored."""

    async def send(self, producer: Producer) -> None:
        """A record, or a row."""
        row = self.rng.choice(self.rows)
        self.outstanding += 1
        if self.rng.random() < 0.5:
            self.begun[row] += 1
            value = json.dumps(self.begun[row]).encode()
            stored = await producer.send(TABLE, value, row, timestamp_ms=self.clock_ms())
            stored.add_done_callback(partial(self._row_settled, row))
            return
        key = self.rng.choice(self.keys)
        self.numbers[key] += 1
        value = json.dumps([self.numbers[key], row.decode()]).encode()
        stored = await producer.send(INPUT, value, key, timestamp_ms=self.clock_ms())
        stored.add_done_callback(partial(self._settled, key))

    def _row_settled(self, row: bytes, stored: Any) -> None:
        self.outstanding -= 1
        if not stored.cancelled():
            result: RecordMetadata = stored.result()
            assert result.topic == TABLE
            self.versions[row] += 1


class GlobalTables(Streaming):
    """One such schedule."""

    feeder_class: type[Feeder] = RowsFeeder
    feeder: Any
    table: Operator

    def __init__(self, seed: int, directory: Path) -> None:
        super().__init__(seed, directory)
        widths = self.rng.choice([one for one in WIDTHS if len(one) > 1])
        self.table = Operator(self.cluster, widths, pause_s=1.0, topic=TABLE, name="operator of the table")
        self.lives = itertools.count(1)
        self.joined = 0

    def topology(self) -> Topology:  # type: ignore[override]
        """The application for one life of an instance, which judges what it meets."""
        life, stored, met = next(self.lives), Counter(self.feeder.versions), Counter[bytes]()

        def join(value: list[Any], version: int | None) -> int:
            number, row = value[0], value[1].encode()
            if (version or 0) < stored[row]:
                self.violations.append(f"life {life} began with {row!r} {stored[row]}, and met version {version}")
            if (version or 0) < met[row]:
                self.violations.append(f"life {life} met version {version} of {row!r} after {met[row]}")
            met[row] = version or 0
            self.joined += version is not None
            return int(number)

        topology = Topology()
        table = topology.global_table(TABLE, store=STORE, value=JSON)
        records = topology.stream(INPUT, value=JSON)
        records.join_global(table, lambda key, value: value[1].encode(), join, left=True).to(OUTPUT)
        return topology

    async def _happen(self) -> None:
        """Start an instance that is cut off from one broker at first, or something else."""
        if self.rng.random() < 0.7:
            await super()._happen()
            return
        instance, machine = self.rng.choice(self.instances), self.rng.choice(self.cluster.brokers)
        self.cluster.fired["start behind a cut"] += 1
        self.cluster.tell(f"--- {instance.name} starts, cut off from {machine.node_id}")
        if instance.alive:
            instance.kill()
        self.cluster.partition([instance.host], [machine.host])
        instance.start()
        await asyncio.sleep(self.rng.random() * 4)
        self.cluster.network.heal_all()

    async def _rest(self) -> None:
        steps = len(self.table.counts) - 1
        await self.cluster.until(lambda: self.table.resized == steps, RESIZED_S, "the table's topic is resized")
        await self.cluster.until(
            lambda: all(self._is_whole(one) for one in self.instances), RESIZED_S, "every instance has every row"
        )
        await super()._rest()
        self.cluster.fired["joined"] += self.joined

    def _is_whole(self, instance: Instance) -> bool:
        if instance.streams is None:
            return False
        try:
            rows = instance.streams.query(STORE, RangeQuery()).rows
        except StreamsError:
            return False
        return {row.key: row.value for row in rows} == self.feeder.versions
