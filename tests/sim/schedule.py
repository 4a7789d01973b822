"""One schedule: from a seed a workload, faults, an end without faults, and a verdict.

First phase: clients work, the topic is resized, and faults come in bursts with quiet times between. Second phase: all
is healed and started, and the cluster must converge (`ending.py`). Then the logs of all brokers are read and the
history is judged. Meanwhile a caretaker moves replicas, elects leaders, deletes records and topics (`chores.py`).

The seed chooses not only which faults happen, but how likely each kind is, so that schedules differ in character.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anabranch.chaos import checkers, second_opinion
from tests.sim import probes, request_probes
from tests.sim.aims import Aim
from tests.sim.chores import CHORES, Caretaker
from tests.sim.clients import EAGER, SLOW, Application, Operator, Reader, Writer
from tests.sim.cluster import SimCluster
from tests.sim.copiers import OUT, Auditor, Copier
from tests.sim.coverage import Coverage
from tests.sim.ending import Ending
from tests.sim.faults import FAULTS, Fault
from tests.sim.history import History
from tests.sim.loop import PROCESS, SimulationStuck

ONE_AT_A_TIME: Final = ("power failure", "power failure everywhere")
OF_COPIERS: Final = ("copier replaced",)
DISABLED: Final[frozenset[str]] = frozenset()


@dataclass
class Verdict:
    """What became of a schedule."""

    seed: int | str
    violations: list[str]
    history: History
    fired: Counter[str]
    steps: Counter[str]
    simulated_s: float
    resizes: int
    coverage: Coverage
    protocols: set[str]

    @property
    def fingerprint(self) -> str:
        return self.history.fingerprint()


@dataclass(frozen=True)
class Shape:
    """What the seed decides about a schedule as a whole."""

    spares: int
    fault_s: float
    counts: list[int]
    brokers: int
    weights: dict[str, float]
    chores: dict[str, float]
    pace_s: float
    readers: int
    keys: int
    flushes: bool
    """Every append is flushed before it counts: then power failures, even of all machines at once, lose nothing."""
    copiers: int
    """How many copy exactly once what the others write; without any there are no transactions."""
    aborts: float
    copies: list[int]
    """How many partitions the topic of the copies has, one count after another."""
    delivery_timeout_ms: int = 8000
    """How long a copier's records may wait to be stored."""
    flush_s: float = 0.05
    """How long a reader's flushes take at most."""
    commit_intervals_ms: tuple[int, ...] = (200, 700)
    """How often readers commit."""
    slow: float = SLOW
    """How often a reader takes its time over what it got."""
    write_pause_s: float = 0.15
    """Between a writer's records."""
    writers: int = 1
    """Each has one batch at most that is stored and not acknowledged."""
    rebalance_timeout_ms: int = 3000
    """How long a reader may take to join again."""
    metadata_max_age_ms: int = 3000
    """How old the metadata of a reader gets at most."""
    strategies: tuple[Sequence[str], ...] = (EAGER,)
    """The assignors that readers offer, in turn; the copiers offer the first ones."""


def shape_of(cluster_rng: Any, transactions_rng: Any) -> Shape:
    """Draw a schedule's character."""
    rng = cluster_rng
    copiers = transactions_rng.choice((0, 0, 0, 0, 0, 1, 2))  # such a schedule costs three times as much
    counts = [rng.choice((1, 2, 3, 4, 4))]
    for _ in range(rng.choice((0, 1, 2, 3, 3, 4))):
        counts.append(rng.choice([one for one in (1, 2, 3, 4, 5, 6, 8) if one != counts[-1]]))
    flushes = rng.random() < 0.3
    kinds = [
        kind
        for kind in FAULTS
        if kind not in DISABLED
        if flushes or kind != "power failure everywhere"
        if copiers or kind not in OF_COPIERS
    ]
    weights = {kind: rng.random() ** 2 for kind in kinds if rng.random() < 0.6}
    chores = {kind: rng.random() ** 2 for kind in CHORES if rng.random() < 0.6}
    return Shape(
        brokers=rng.choice((3, 3, 3, 4)),
        chores=chores if rng.random() < 0.7 else {},
        spares=rng.choice((0, 1, 1, 2)),
        fault_s=rng.uniform(6, 14),
        counts=counts,
        weights=weights,
        pace_s=rng.choice((0.4, 0.8, 1.5)),
        readers=rng.choice((1, 2, 3)),
        keys=rng.choice((3, 8, 20)),
        flushes=flushes,
        copiers=copiers,
        aborts=transactions_rng.choice((0.0, 0.1, 0.4)),
        copies=transactions_rng.choice(([2], [2], [1, 3], [2, 3, 1], [4, 2, 5])),
    )


class Schedule:
    """One run; with an aim, of its story alone."""

    def __init__(self, seed: int | str, aim: Aim | None = None) -> None:
        self.seed = seed = seed if aim is None else f"{aim.name}-{seed}"
        self.aim = aim
        probe = SimCluster.__new__(SimCluster)
        probe.seed = seed
        self.rng = probe.rng("schedule")
        self.shape = shape_of(self.rng, probe.rng("transactions"))
        if aim is not None:
            self.shape = aim.reshape(self.shape)
        self.cluster = SimCluster(seed, brokers=self.shape.brokers, spares=self.shape.spares, changes=self._changes())
        pause_s = self.shape.fault_s / 5
        self.operators = [Operator(self.cluster, self.shape.counts, pause_s=pause_s)]
        if self.shape.copiers:
            self.operators.append(
                Operator(self.cluster, self.shape.copies, pause_s=pause_s, topic=OUT, name="operator of copies")
            )
        self.writers = self._writers()
        self.readers = self._readers()
        self.caretaker = Caretaker(
            self.cluster, self.shape.chores, pause_s=self.shape.pace_s, with_copiers=self.shape.copiers > 0
        )
        self.copiers = self._copiers()
        self.auditors = [Auditor(self.cluster, "auditor")] if self.copiers else []
        self.busy: dict[str, int] = {}
        self.fragile = False
        """A machine lost its page cache and has not caught up yet: no other fault may come on top."""

    def _changes(self) -> dict[str, Any]:
        flushing = {"log_flush_interval_messages": 1} if self.shape.flushes else {}
        return {**flushing, **({} if self.aim is None else self.aim.settings)}

    def _writers(self) -> list[Writer]:
        shape = self.shape
        numbers = range(1, shape.writers + 1)
        return [Writer(self.cluster, f"writer-{n}", keys=shape.keys, pause_s=shape.write_pause_s) for n in numbers]

    def _readers(self) -> list[Reader]:
        shape = self.shape
        numbers = range(1, shape.readers + 1)
        return [
            Reader(
                self.cluster,
                f"reader-{n}",
                flush_s=shape.flush_s,
                commit_intervals_ms=shape.commit_intervals_ms,
                slow=shape.slow,
                strategy=shape.strategies[n % len(shape.strategies)],
                rebalance_timeout_ms=shape.rebalance_timeout_ms,
                metadata_max_age_ms=shape.metadata_max_age_ms,
            )
            for n in numbers
        ]

    def _copiers(self) -> list[Copier]:
        shape = self.shape
        return [
            Copier(
                self.cluster,
                f"copier-{n}",
                aborts=shape.aborts,
                delivery_timeout_ms=shape.delivery_timeout_ms,
                strategy=shape.strategies[0],
            )
            for n in range(1, shape.copiers + 1)
        ]

    @functools.cached_property
    def coverage(self) -> Coverage:
        """The pairs of faults, chores and phases of a resize that the schedule met."""
        return Coverage(self.cluster)

    @property
    def protocols(self) -> set[str]:
        """The kinds of clients that read the topic."""
        return {name for one in self.readers for name in one.protocol_names} | (
            {"transactions"} if self.copiers else set()
        )

    @property
    def menu(self) -> Mapping[str, Fault]:
        """The faults that there are."""
        return FAULTS

    def run(self) -> Verdict:
        cluster = self.cluster
        with listening(cluster) as noticed, probes.watching(cluster), request_probes.watching(cluster):
            try:
                cluster.loop.run(self._life())
            except SimulationStuck as error:
                cluster.history.complete = False
                cluster.history.failures.append(f"stuck: {error}")
            except Exception as error:  # a log that cannot be read, or a mistake of this simulation
                cluster.history.complete = False
                cluster.history.failures.append(f"cannot be judged: {traceback.format_exc()}{error!r}")
        history = cluster.history
        history.failures += [f"unhandled: {line}" for line in cluster.loop.failures]
        history.failures += [f"log: {line}" for line in noticed.bugs]
        fired = cluster.fired + cluster.network.fired + cluster.zookeeper.fired
        for machine in cluster.machines.values():
            fired += machine.disk.fired
        return Verdict(
            self.seed,
            checkers.judge(history) + second_opinion.judge_again(history),
            history,
            fired,
            cluster.steps,
            cluster.now(),
            sum(operator.resized for operator in self.operators),
            self.coverage,
            self.protocols,
        )

    @property
    def further_groups(self) -> Mapping[str, History]:
        """What groups beside the one that all checkers judge have seen."""
        return {}

    @property
    def clients(self) -> list[Application]:
        """All processes that may die or freeze."""
        return [*self.readers, *self.writers, *self.copiers, *self.auditors]

    # --- the phases

    async def _life(self) -> None:
        cluster = self.cluster
        await cluster.start()
        for operator in self.operators:
            await operator.create()
        self.caretaker.coverage, self.caretaker.await_moment = self.coverage, self.await_moment
        for application in (*self.clients, *self.operators, self.caretaker):
            application.start()
        await asyncio.sleep(0.5)
        await self._faults()
        await self._heal()
        administrators = (*self.operators, self.caretaker)
        ending = Ending(cluster, self.writers, self.readers, administrators, self.copiers, self.further_groups)
        cluster.history.complete = await ending.converge()
        if cluster.history.complete:
            ending.collect()

    async def _faults(self) -> None:
        cluster, rng, shape = self.cluster, self.rng, self.shape
        end = cluster.now() + shape.fault_s
        while self.aim is not None and cluster.now() < end:
            await asyncio.sleep(rng.expovariate(1 / shape.pace_s))
            await self._fault(self.aim.name, self.aim.story)
        while cluster.now() < end:
            await asyncio.sleep(rng.expovariate(1 / shape.pace_s))
            kinds = [kind for kind in shape.weights if not self.fragile or self.is_harmless(kind)]
            if not kinds or cluster.now() >= end:
                continue
            for _ in range(rng.choice((1, 1, 1, 2, 3))):  # bursts: faults that meet are the interesting ones
                kind = rng.choices(kinds, [shape.weights[one] for one in kinds])[0]
                if self.stands_alone(kind) and not await self._becomes_quiet():
                    continue
                cluster.loop.spawn(None, self._fault(kind, self.menu[kind]), kind)
                if self.stands_alone(kind):
                    break
                await asyncio.sleep(rng.random() * 0.05)

    def stands_alone(self, kind: str) -> bool:
        """Whether no fault of replicas may be under way with this one: acknowledged records would be lost."""
        return kind in ONE_AT_A_TIME

    def is_harmless(self, kind: str) -> bool:
        """Whether a fault may come on top of one that stands alone."""
        return False

    async def await_moment(self, kind: str) -> None:
        """Wait until a fault or chore may best begin: here it is any time."""

    async def _fault(self, kind: str, happens: Fault) -> None:
        self.busy[kind] = self.busy.get(kind, 0) + 1
        try:
            await self.await_moment(kind)
            with self.coverage.during(kind) as span:
                span.happened = await happens(self)
            self.cluster.fired[f"fault: {kind}"] += span.happened
        finally:
            self.busy[kind] -= 1

    async def _becomes_quiet(self) -> bool:
        deadline = self.cluster.now() + 2
        while not self._quiet() and self.cluster.now() < deadline:
            await asyncio.sleep(0.1)
        return self._quiet()

    def _quiet(self) -> bool:
        return (
            not any(times for kind, times in self.busy.items() if not self.is_harmless(kind))
            and all(
                machine.up and not machine.disk.full and not machine.disk.lying
                for machine in self.cluster.machines.values()
            )
            and self.cluster.all_in_isr()
            and self.cluster.resting()
        )

    async def _heal(self) -> None:
        cluster = self.cluster
        cluster.tell("all faults end")
        while any(self.busy.values()):
            await asyncio.sleep(0.1)
        for reader in self.readers:
            reader.slow = min(reader.slow, SLOW)  # whoever sleeps half the time does not get done in time
        for machine in cluster.machines.values():
            machine.disk.full = machine.disk.lying = False
            machine.disk.unflushable = ""
            machine.disk.die_in_append = None
            machine.failpoint = ""
        cluster.end_faults()


@contextlib.contextmanager
def listening(cluster: SimCluster) -> Iterator[_Noticed]:
    """Record all log lines, at any log level: they are part of the story and its fingerprint."""
    root, noticed = logging.getLogger(), _Noticed(cluster)
    level, disabled = root.level, root.manager.disable
    root.addHandler(noticed)
    root.setLevel(logging.INFO)
    logging.disable(logging.NOTSET)
    try:
        yield noticed
    finally:
        root.removeHandler(noticed)
        root.setLevel(level)
        logging.disable(disabled)


class _Noticed(logging.Handler):
    """A line of the log with a traceback is a bug that somebody caught, and fails the run."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(logging.DEBUG)
        self._cluster = cluster
        self.bugs: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        name = "-" if process is None else process.name
        caught = record.exc_info is not None and record.exc_info[1] is not None and record.levelno >= logging.ERROR
        if caught and record.exc_info is not None and (process is None or process.alive):
            self.bugs.append(f"{name}: {record.getMessage()}: {record.exc_info[1]!r}")
        line = f"{record.levelname.lower()[:4]} {record.name}: {record.getMessage()}"
        self._cluster.tell(f"  {name} {line}")
