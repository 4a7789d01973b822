"""Sends millions of keyed records through a hundred resizes, while every role is killed; judged during delivery.

Three brokers, two spare controllers and an ensemble of three ZooKeeper servers, each a process. Two producers send as
fast as the readers follow. After each further share of the stored records, the topic is resized, or a process is
killed, frozen or loses its ZooKeeper session. Unlike `chaos.run` it keeps only a number per key (`chaos.ledger`), so
only time limits the length.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch import Admin, Consumer, NewTopic, Producer
from anabranch.chaos.audit_companion import AuditCompanionProcess, forget_audit, partitions
from anabranch.chaos.clients import CLIENT_FAILURES, MEMBER, ended, resize_topic
from anabranch.chaos.ledger import Ledger
from anabranch.chaos.marathon_faults import FAULTS, lane_of
from anabranch.clients.clock import wall_clock_ms
from anabranch.cluster.ensemble import LocalEnsemble
from anabranch.cluster.processes import ProcessCluster
from anabranch.report.timeline import Moment

log = logging.getLogger(__name__)

TOPIC: Final = "marathon"
GROUP: Final = "runners"
FIRST_COUNT: Final = 4
COUNTS: Final = (1, 2, 3, 4, 5, 6, 8, 12)
LAG_MAX: Final = 50_000
"""How far the readers may lag before the writers wait."""
CATCH_UP_S: Final = 120.0
CHUNK: Final = 200
PROPERTIES: Final = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
    "request.timeout.ms": "8000",
    "group.min.session.timeout.ms": "3000",
    "auto.create.topics.enable": "false",
}
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarathonPlan:
    """The parameters of a marathon."""

    records: int = 10_000_000
    resizes: int = 100
    seed: int = 0
    keys: int = 200
    readers: int = 2
    faults: int = 150
    gates: bool = True
    """Whether readers wait at cuts. Without it, the order must break, and be detected."""
    head_start: int = 0
    """The number of records stored before readers start; at most `LAG_MAX`."""
    audit: str | None = None
    """The topic to which readers write their deliveries; None for none."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a marathon."""

    course: MarathonPlan
    ledger: Ledger
    acknowledged: int
    missing: int
    resizes: list[tuple[float, int]]
    """(seconds from the request until it was published, count)"""
    faults: Counter[str]
    elapsed_s: float
    trouble: list[str]

    @property
    def good(self) -> bool:
        """Whether everything acknowledged was delivered once and in order."""
        return not (self.ledger.found or self.missing or self.trouble)


@dataclass(slots=True)
class Runner:
    """The shared state of writers, readers and faults."""

    course: MarathonPlan
    cluster: ProcessCluster
    say: Say
    companion: AuditCompanionProcess | None = None
    ledger: Ledger = field(default_factory=Ledger)
    sent: int = 0
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    resizes: list[tuple[float, int]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    moments: list[Moment] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    readers: list[asyncio.Task[None]] = field(default_factory=list)
    stopping: bool = False

    def chance(self, purpose: str) -> random.Random:
        """Return a random generator for one purpose."""
        return random.Random(f"{self.course.seed}/{purpose}")

    @property
    def stored(self) -> int:
        """The number of acknowledged records."""
        return sum(self.acknowledged.values())

    # --- clients

    async def write(self, name: str, share: int) -> None:
        """Send a share of all records, each key in its own order, and wait for all acknowledgements."""
        rng = self.chance(name)
        keys = [f"{name}-{number}".encode() for number in range(self.course.keys // 2)]
        sequences = dict.fromkeys(keys, 0)
        self.acknowledged.update(dict.fromkeys(keys, 0))
        producer = Producer(
            self.cluster.bootstrap_servers,
            client_id=name,
            linger_ms=10,
            batch_bytes=65536,
            request_timeout_ms=5000,
            delivery_timeout_ms=600_000,
            max_block_ms=120_000,
            metadata_max_age_ms=5000,
            audit=self.course.audit is not None,
        )
        async with producer:
            while share > 0:
                while self._is_ahead():  # noqa: ASYNC110 -- readers set no event
                    await asyncio.sleep(0.02)
                for key in rng.choices(keys, k=min(CHUNK, share)):
                    sequence = sequences[key]
                    receipt = await producer.send(TOPIC, sequence.to_bytes(8), key)
                    sequences[key] = sequence + 1
                    self.sent += 1
                    receipt.add_done_callback(lambda done, key=key: self._settled(key, done))  # type: ignore[misc]
                share -= CHUNK
                await asyncio.sleep(0)
            await producer.flush()

    def _is_ahead(self) -> bool:
        """Whether writers must wait, because readers or resizes are far behind."""
        shares = (len(self.resizes) + 1.5) / (self.course.resizes + 1)
        return self.sent - self.ledger.delivered > LAG_MAX or self.sent >= self.course.records * shares

    def _settled(self, key: bytes, receipt: asyncio.Future[object]) -> None:
        if receipt.cancelled() or receipt.exception() is not None:
            self.trouble.append(f"a record of {key.decode()} was not stored: {receipt}")
        else:
            self.acknowledged[key] += 1

    async def read(self, name: str) -> None:
        """Run one member of the group until it ends."""
        hand_out = self.ledger.hand_out
        consumer = Consumer(
            TOPIC,
            bootstrap_servers=self.cluster.bootstrap_servers,
            client_id=name,
            group_id=GROUP,
            max_poll_records=5000,
            ordered_delivery=self.course.gates,
            audit=self.course.audit,
            **MEMBER,
        )
        try:
            await consumer.start()
            while not self.stopping:
                for partition, records in (await consumer.getmany(timeout_ms=500)).items():
                    index = partition.partition
                    for record in records:
                        hand_out(record.key or b"", int.from_bytes(record.value or b""), index, record.offset)
            await consumer.stop()
        except CLIENT_FAILURES as error:
            log.info("%s starts over: %s", name, error)
        finally:
            await consumer._network.close()  # after a crash the group notices only when the session ends
            await forget_audit(consumer)

    async def keep_reading(self, number: int) -> None:
        """Replace a member when it has ended, by failure or by crash."""
        await self._reached(self.course.head_start)
        life = 0
        while not self.stopping:
            life += 1
            task = self.readers[number] = asyncio.create_task(self.read(f"r{number}.{life}"))
            await ended(task)

    # --- resizes

    async def resize(self) -> None:
        """Resize after each further share of the stored records."""
        rng, loop, count = self.chance("resizes"), asyncio.get_running_loop(), FIRST_COUNT
        for number in range(self.course.resizes):
            await self._reached(self.course.records * (number + 0.5) / (self.course.resizes + 1))
            count = rng.choice([one for one in COUNTS if one != count])
            started_s = loop.time()
            await resize_topic(self.cluster.bootstrap_servers, TOPIC, count, {})
            self.resizes.append((loop.time() - started_s, count))
            self.moments.append(Moment(wall_clock_ms(), "resize", partitions(count), partitions(count)))

    # --- faults

    async def disturb(self) -> None:
        """Inject a fault after each further share of the stored records; killed processes are restarted first."""
        rng = self.chance("faults")
        faults = FAULTS | {"a reader crashed": self._crash_reader}
        while self.faults.total() < self.course.faults:
            await self._reached(self.course.records * (self.faults.total() + 0.3) / self.course.faults)
            await asyncio.sleep(rng.uniform(0, 1))
            name, started_ms = rng.choice(list(faults)), wall_clock_ms()
            if await asyncio.shield(asyncio.ensure_future(faults[name](self.cluster, rng))):
                self.faults[name] += 1
                self.moments.append(Moment(started_ms, lane_of(name), name, name))

    async def _crash_reader(self, _: ProcessCluster, rng: random.Random) -> bool:
        task = rng.choice(self.readers)
        return not task.done() and task.cancel()

    # --- run

    async def run(self) -> Outcome:
        """Run until all is sent, resized and delivered, or there is no progress. Returns the outcome."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        async with Admin(self.cluster.bootstrap_servers) as admin:
            for topic in filter(None, (TOPIC, self.course.audit)):
                await admin.create_topics([NewTopic(name=topic, partitions=FIRST_COUNT, replication_factor=3)])
                await admin.wait_for_topic(topic, replicas=3)
        if self.companion is not None:
            await self.companion.begin(self.cluster.bootstrap_servers, {})
        self.readers = [loop.create_task(asyncio.sleep(0)) for _ in range(self.course.readers)]
        reading = [loop.create_task(self.keep_reading(number)) for number in range(self.course.readers)]
        half = self.course.records // 2
        work = [
            loop.create_task(self.write("w0", half)),
            loop.create_task(self.write("w1", self.course.records - half)),
            loop.create_task(self.resize()),
        ]
        work.append(loop.create_task(self.disturb()))
        others = [loop.create_task(self._tell(started_s))]
        try:
            await self._all_of(work, [*reading, *others])
            await self._caught_up()
        finally:
            self.stopping = True
            for task in (*work, *others):
                task.cancel()
            await asyncio.wait([*work, *others, *reading], timeout=20)
            for task in reading:
                task.cancel()
            await asyncio.gather(*work, *others, *reading, return_exceptions=True)
        if self.companion is not None:
            await self.companion.end(self.moments)
        return Outcome(
            self.course,
            self.ledger,
            self.stored,
            self.ledger.missing(self.acknowledged),
            self.resizes,
            self.faults,
            loop.time() - started_s,
            self.trouble,
        )

    async def _reached(self, records: float) -> None:
        while self.stored < records:  # noqa: ASYNC110 -- a thousand acknowledgements a second are no events
            await asyncio.sleep(0.05)

    async def _all_of(self, work: list[asyncio.Task[None]], others: list[asyncio.Task[None]]) -> None:
        """Wait for the work; a bug in any other task ends it."""
        waiting = set(work)
        while waiting:
            done, _ = await asyncio.wait([*waiting, *others], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            waiting -= done

    async def _caught_up(self) -> None:
        now_s, delivered = asyncio.get_running_loop().time, -1
        while self.ledger.missing(self.acknowledged) and not self.ledger.found:
            if self.ledger.delivered > delivered:
                delivered, deadline_s = self.ledger.delivered, now_s() + CATCH_UP_S
            if now_s() > deadline_s:
                self.trouble.append(
                    f"L1 no convergence: not everything was delivered, and nothing for the last {CATCH_UP_S:g} s"
                )
                return
            await asyncio.sleep(0.1)

    async def _tell(self, started_s: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(5)
            ledger = self.ledger
            self.say(
                f"{loop.time() - started_s:7.1f} s  {self.stored:>11,} stored  {ledger.delivered:>11,} delivered  "
                f"{ledger.repeated:>8,} repeated  {len(self.resizes):>4} resizes  {self.faults.total():>4} faults  "
                f"{ledger.found} anomalies"
            )


def report(outcome: Outcome) -> Iterator[str]:
    """Format the outcome."""
    ledger = outcome.ledger
    yield (
        f"{outcome.acknowledged:,} records acknowledged, {ledger.delivered:,} delivered, {outcome.missing:,} missing, "
        f"{ledger.repeated:,} repeated after a restart of their reader, in {outcome.elapsed_s:,.0f} s"
    )
    if outcome.resizes:
        taken = sorted(took for took, _ in outcome.resizes)
        yield (
            f"{len(taken)} resizes, published after {taken[len(taken) // 2] * 1000:.0f} ms (median), "
            f"{taken[-1]:.1f} s at most"
        )
    for name, times in sorted(outcome.faults.items()):
        yield f"  {times:4} x {name}"
    yield from outcome.trouble
    yield from (f"  {line}" for line in ledger.anomalies)
    if ledger.delivered and not ledger.found:
        yield f"0 anomalies: with 95 % confidence fewer than {3 / ledger.delivered:.1e} of all records"
    else:
        yield f"{ledger.found} anomalies"


async def marathon(
    course: MarathonPlan, *, say: Say, companion: AuditCompanionProcess | None = None, directory: Path | None = None
) -> Outcome:
    """Start the cluster, run, end it. `directory` keeps the nodes' data and logs; without one they are removed."""
    with contextlib.ExitStack() as stack:
        place = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="anabranch-marathon-")))
        async with LocalEnsemble(place) as ensemble:
            cluster = ProcessCluster(
                controllers=2, zookeeper=ensemble.hosts, directory=place / "nodes", properties=PROPERTIES
            )
            (place / "nodes").mkdir()
            async with cluster:
                return await Runner(course, cluster, say, companion).run()
