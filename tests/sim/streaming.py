"""A Streams application on a simulated cluster: instances start, stop and die, brokers fail, the input is resized.

The application counts records by key, and sends each new count on. Whatever happens, each key's counts arrive in the
output as 1, 2, 3, ... with nothing left out, repeated or out of order, up to the number of its records: state, position
and output are one. Instances are the real `Streams`, with their stores in a real directory; killing one leaves there
what its last write left.

    python -m tests.sim.streaming [SEED] [--schedules 300] [--no-resizes | --removals | --joins | --repeats]
                                                           [--timers | --windows | --stream-joins | --table-joins]
                                                           [--foreign-joins | --global-tables]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from anabranch import Consumer, Producer
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.streams import Streams
from anabranch.clients.streams.topology import Topology
from tests.sim.clients import CLIENT_FAILURES, Application, Operator
from tests.sim.cluster import SimCluster
from tests.sim.loop import Process, SimulationStuck
from tests.sim.processes import run_schedules, schedule_parser

INPUT, OUTPUT = "in", "out"
TABLE: Final = "table"
"""The other input of applications that join two topics."""
APPLICATION: Final = "counting"
INSTANCES: Final = 3
WIDTHS: Final = ([4], [4, 8, 3], [2, 5, 1, 4], [1, 2, 4], [3, 2, 1, 5])
REST_S: Final = 120
RESIZED_S: Final = 120


def counting() -> Topology:
    """How often each key came, each time."""
    topology = Topology()
    topology.stream(INPUT).count("counts").to(OUTPUT)
    return topology


class Instance(Application):
    """One instance; its disk stays when it dies."""

    def __init__(
        self, cluster: SimCluster, name: str, directory: Path, topology: Callable[[], Topology], **settings: Any
    ) -> None:
        super().__init__(cluster, name)
        self.directory = directory
        self.topology = topology
        self.settings = settings
        self.streams: Streams | None = None
        self.processed = self.moved = 0

    async def run(self) -> None:
        while not self.stopping:
            self.streams = Streams(
                self.topology(),
                StreamsConfig(
                    application_id=APPLICATION,
                    bootstrap_servers=self.cluster.bootstrap,
                    state_dir=self.directory / self.name,
                    client_id=self.identity,
                    session_timeout_ms=2000,
                    heartbeat_interval_ms=300,
                    rebalance_timeout_ms=5000,
                    transaction_timeout_ms=4000,
                    **self.settings,
                ),
                rng=self.chance("streams"),
                clock_ms=self.clock_ms,
            )
            try:
                await self.streams.start()
                await self._work(self.streams)
            except CLIENT_FAILURES as error:
                self.tell(f"starts over: {error!r}")
            await self._end(self.streams)
            if not self.stopping:
                self.life += 1
                await asyncio.sleep(0.3)

    async def _work(self, streams: Streams) -> None:
        failed = asyncio.ensure_future(streams.wait_failed())
        try:
            while not self.stopping and not failed.done():
                await asyncio.wait([failed], timeout=0.1)
            if failed.done():
                failed.result()
        finally:
            failed.cancel()

    async def _end(self, streams: Streams) -> None:
        self.processed += streams.processed
        self.moved += streams.moves.keys if hasattr(streams, "_committer") else 0
        try:
            await streams.stop()
        except CLIENT_FAILURES as error:
            self.tell(f"stopped with {error!r}")

    def kill(self) -> None:
        """kill -9: what the operating system closes is closed here."""
        streams, self.streams = self.streams, None
        super().kill()
        if streams is not None and hasattr(streams, "_directory"):
            if hasattr(streams, "_manager"):
                streams._manager.close()
            if hasattr(streams, "_global"):
                streams._global.close()
            streams._directory.close()


class Feeder(Application):
    """Sends keyed records until it is stopped; waits until each is stored."""

    def __init__(self, cluster: SimCluster, name: str, *, keys: int, pause_s: float) -> None:
        super().__init__(cluster, name)
        self.keys = [b"key-%d" % number for number in range(keys)]
        self.pause_s = pause_s
        self.sent: Counter[bytes] = Counter()
        self.outstanding = 0
        self.resting = False

    async def run(self) -> None:
        async with Producer(
            self.cluster.bootstrap,
            client_id=self.identity,
            linger_ms=5,
            request_timeout_ms=1500,
            delivery_timeout_ms=600_000,
            max_block_ms=600_000,
            metadata_max_age_ms=4000,
            rng=self.chance("producer"),
        ) as producer:
            while not self.stopping:
                if self.resting:
                    await asyncio.sleep(0.05)
                    continue
                await self.send(producer)
                await asyncio.sleep(self.pause_s * self.rng.random() * 2)

    async def send(self, producer: Producer) -> None:
        """One record."""
        key = self.rng.choice(self.keys)
        self.outstanding += 1
        stored = await producer.send(INPUT, b"", key, timestamp_ms=self.clock_ms())
        stored.add_done_callback(partial(self._settled, key))

    def _settled(self, key: bytes, stored: asyncio.Future[RecordMetadata]) -> None:
        self.outstanding -= 1
        if not stored.cancelled():
            stored.result()
            self.sent[key] += 1


class Streaming:
    """One schedule."""

    topology = staticmethod(counting)
    feeder_class = Feeder
    table: Operator | None = None
    """Resizes the topic TABLE, if there is one."""

    def __init__(self, seed: int, directory: Path, *, resizes: bool = True) -> None:
        self.seed = seed
        self.cluster = SimCluster(f"streaming-{seed}", spares=0, changes={"log_segment_bytes": 50_000})
        self.rng = rng = self.cluster.rng("streaming")
        settings = {
            "task_assignor": rng.choice(["high_availability", "high_availability", "sticky"]),
            "rebalance_protocol": rng.choice(["cooperative", "cooperative", "cooperative", "eager"]),
            "num_standby_replicas": rng.choice([0, 0, 1]),
            "acceptable_recovery_lag": rng.choice([0, 20, 10_000]),
            "probing_rebalance_interval_ms": 60_000,
            "commit_interval_ms": rng.choice([50, 200, 1000]),
        }
        self.instances = [
            Instance(self.cluster, f"instance-{number}", directory, self.topology, **settings)
            for number in range(1, INSTANCES + 1)
        ]
        widths = rng.choice(WIDTHS)
        self.operator = Operator(self.cluster, widths if resizes else widths[:1], pause_s=3.0, topic=INPUT)
        self.output = Operator(self.cluster, [2], pause_s=1.0, topic=OUTPUT, name="operator of output")
        self.feeder = self.feeder_class(
            self.cluster, "feeder", keys=rng.choice([3, 20]), pause_s=rng.choice([0.02, 0.1])
        )
        self.violations: list[str] = []

    def run(self) -> list[str]:
        """Play it; what is wrong."""
        try:
            self.cluster.loop.run(self._life())
        except SimulationStuck as error:
            self.violations.append(f"stuck: {error}")
        finally:
            for instance in self.instances:
                if instance.alive:
                    instance.kill()
        self.violations += self.cluster.history.failures
        self.violations += [f"unhandled: {line}" for line in self.cluster.loop.failures]
        return self.violations

    async def _life(self) -> None:
        cluster = self.cluster
        await cluster.start()
        await self._create_topics()
        self._start()
        end = cluster.now() + self.rng.uniform(8, 16)
        while cluster.now() < end:
            await asyncio.sleep(self.rng.expovariate(1.0))
            await self._happen()
        await self._come_to_rest()

    async def _create_topics(self) -> None:
        for operator in (self.operator, self.output, self.table):
            if operator is not None:
                await operator.create()

    def _start(self) -> None:
        for application in (self.feeder, self.operator, self.instances[0], self.table):
            if application is not None:
                application.start()

    async def _come_to_rest(self) -> None:
        cluster = self.cluster
        await self._heal()
        if await cluster.until(lambda: cluster.in_sync(), 60, "the cluster heals"):
            await self._rest()

    async def _happen(self) -> None:
        cluster, rng = self.cluster, self.rng
        what = rng.choice(["start", "start", "kill", "kill", "stop", "crash", "freeze", "cut", "none"])
        cluster.fired[what] += 1
        cluster.tell(f"--- {what}")
        instance = rng.choice(self.instances)
        machine = rng.choice(cluster.brokers)
        if what == "start":
            instance.start()
        elif what == "kill" and instance.alive:
            instance.kill()
        elif what == "stop" and instance.alive:
            await self._stopped(instance)
        elif what == "crash":
            cluster.crash(machine.node_id)
            await asyncio.sleep(rng.random() * 2)
            cluster.boot(machine.node_id)
        elif what == "freeze":
            await cluster.freeze_for(machine.node_id, rng.random() * 3)
        elif what == "cut":
            others = [one.host for one in cluster.brokers if one is not machine]
            cluster.partition([instance.host], [machine.host, *others[: rng.randint(0, 2)]])
            await asyncio.sleep(rng.random() * 4)
            cluster.network.heal_all()

    async def _stopped(self, instance: Instance) -> None:
        instance.stopping = True
        assert instance.task is not None
        if await self.cluster.until(lambda: instance.task is None or instance.task.done(), 90, "an instance stops"):
            instance.process = None
        instance.stopping = False

    async def _heal(self) -> None:
        cluster = self.cluster
        cluster.tell("all faults end")
        cluster.end_faults()
        for instance in self.instances:
            instance.start()
        self.feeder.stopping = True
        await cluster.until(lambda: not self.feeder.outstanding, 120, "all input is stored")

    async def _rest(self) -> None:
        reading = self.cluster.loop.spawn(Process("judge", "judge"), self._read(), "reading the output")
        if await self.cluster.until(reading.done, REST_S, "the output is complete"):
            reading.result()
        else:
            reading.cancel()
        for instance in self.instances:
            await self._stopped(instance)

    async def _read(self) -> None:
        counted: Counter[bytes] = Counter()
        async with Consumer(
            OUTPUT,
            bootstrap_servers=self.cluster.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            rng=self.cluster.rng("reading"),
        ) as consumer:
            while not self._complete(counted):
                for rows in (await consumer.getmany(timeout_ms=200)).values():
                    for record in rows:
                        assert record.key is not None
                        value = None if record.value is None else json.loads(record.value)
                        self._judge(record.key, value, counted)

    def _complete(self, counted: Counter[bytes]) -> bool:
        return counted == self.feeder.sent

    def _judge(self, key: bytes, count: int, counted: Counter[bytes]) -> None:
        if count != counted[key] + 1:
            self.violations.append(f"{key.decode()} is counted {count} after {counted[key]}")
        if count > self.feeder.sent[key]:
            self.violations.append(f"{key.decode()} is counted {count} times, and was sent {self.feeder.sent[key]}")
        counted[key] = count


KINDS: Final = {
    "removals": "merge and remove partitions that never got a record",
    "joins": "join two topics, and resize one after the other",
    "repeats": "process at least once, instead of exactly once",
    "timers": "set a timer for each record, too",
    "windows": "count in windows of time, sliding windows and sessions",
    "stream-joins": "join two topics within a window of time",
    "table-joins": "join two tables, and resize one after the other",
    "foreign-joins": "join two tables by a foreign key, and resize each alone",
    "global-tables": "join with a global table, and resize its topic",
}
RESIZED: Final = ("removals", "joins", "stream-joins", "table-joins", "foreign-joins", "global-tables")
"""Kinds that are about resizes."""


def play(seed: int, *, kind: str = "", resizes: bool = True, tell: bool = False) -> tuple[int, list[str], Counter[str]]:
    """One schedule of a kind (`KINDS`): what is wrong, and what happened."""
    from tests.sim.resizing import removals_soon
    from tests.sim.streaming_foreign_joins import ForeignJoins
    from tests.sim.streaming_global_tables import GlobalTables
    from tests.sim.streaming_joins import Joins, TableJoins
    from tests.sim.streaming_removals import Removals
    from tests.sim.streaming_repeats import Repeats
    from tests.sim.streaming_stream_joins import StreamJoins
    from tests.sim.streaming_timers import Timers
    from tests.sim.streaming_windows import Windows

    joins: dict[str, type[Joins]] = {"joins": Joins, "stream-joins": StreamJoins, "table-joins": TableJoins}
    others = {"": Streaming, "removals": Removals, "repeats": Repeats, "timers": Timers, "windows": Windows}
    others |= {"foreign-joins": ForeignJoins, "global-tables": GlobalTables}
    with tempfile.TemporaryDirectory(prefix="streaming-") as directory, contextlib.ExitStack() as settings:
        if kind == "removals" or (kind in (*joins, "foreign-joins", "global-tables") and seed % 2):
            settings.enter_context(removals_soon())
        without = {} if resizes else {"resizes": False}
        schedule = {**others, **joins}[kind](seed, Path(directory), **without)
        violations = schedule.run()
    fired = Counter(schedule.cluster.fired)
    fired["records"] = sum(schedule.feeder.sent.values())
    fired["resizes"] = schedule.operator.resized
    fired["keys moved"] = sum(one.moved for one in schedule.instances)
    fired["processed"] = sum(one.processed for one in schedule.instances)
    if tell:
        for at_s, line in schedule.cluster.history.story:
            print(f"{at_s:9.3f}  {line}")
    return seed, violations, fired


def main(arguments: list[str] | None = None) -> int:
    """Many seeds, or one with its story."""
    parser = schedule_parser("tests.sim.streaming", __doc__, 300)
    parser.add_argument("--no-resizes", dest="resizes", action="store_false", help="leave the input as wide as it is")
    kinds = parser.add_mutually_exclusive_group()
    for kind, what in KINDS.items():
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, default="", help=what)
    options = parser.parse_args(arguments)
    if not options.resizes and options.kind in RESIZED:
        parser.error(f"--{options.kind} resizes: leave --no-resizes out")
    return run_schedules(partial(play, kind=options.kind, resizes=options.resizes), options)


if __name__ == "__main__":
    sys.exit(main())
