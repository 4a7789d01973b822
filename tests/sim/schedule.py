"""One schedule: from a seed a workload, faults with probabilities of their own, an end without faults, and a verdict.

First phase: clients work, the topic is resized, and faults come in bursts with quiet times between. Second phase: all
is healed and started, and the cluster must converge: every replica in sync, every record delivered and committed. Then
the logs of all brokers are read and the history is judged.

The seed chooses not only which faults happen, but how likely each kind is, so that schedules differ in character.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from chaos import checkers
from controller.failpoints import STEPS
from controller.zk import paths
from protocol.errors import KafkaError
from protocol.records.batch import iter_batches, iter_records
from tests.sim import probes
from tests.sim.clients import TOPIC, Operator, Reader, Writer
from tests.sim.cluster import SimCluster
from tests.sim.history import History, Stored
from tests.sim.loop import PROCESS, SimulationStuck

CONVERGENCE_S: Final = 40.0
ONE_AT_A_TIME: Final = ("power failure", "power failure everywhere")
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
    log_lines: list[str] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        return self.history.fingerprint()


@dataclass(frozen=True)
class Shape:
    """What the seed decides about a schedule as a whole."""

    spares: int
    fault_s: float
    counts: list[int]
    weights: dict[str, float]
    pace_s: float
    readers: int
    keys: int
    flushes: bool
    """Every append is flushed before it counts: then power failures, even of all machines at once, lose nothing."""


def shape_of(cluster_rng: Any) -> Shape:
    """Draw a schedule's character."""
    rng = cluster_rng
    counts = [rng.choice((1, 2, 4, 4, 4))]
    for _ in range(rng.choice((0, 1, 2, 3, 3, 4))):
        counts.append(rng.choice([one for one in (1, 2, 3, 4, 5, 6, 8) if one != counts[-1]]))
    flushes = rng.random() < 0.3
    kinds = [kind for kind in FAULTS if kind not in DISABLED if flushes or kind != "power failure everywhere"]
    weights = {kind: rng.random() ** 2 for kind in kinds if rng.random() < 0.6}
    return Shape(
        spares=rng.choice((0, 1, 1, 2)),
        fault_s=rng.uniform(6, 14),
        counts=counts,
        weights=weights,
        pace_s=rng.choice((0.4, 0.8, 1.5)),
        readers=rng.choice((1, 2, 3)),
        keys=rng.choice((3, 8, 20)),
        flushes=flushes,
    )


class Schedule:
    """One run."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        probe = SimCluster.__new__(SimCluster)
        probe.seed = seed
        self.rng = probe.rng("schedule")
        self.shape = shape_of(self.rng)
        changes = {"log_flush_interval_messages": 1} if self.shape.flushes else {}
        self.cluster = SimCluster(seed, spares=self.shape.spares, changes=changes)
        self.operator = Operator(self.cluster, self.shape.counts, pause_s=self.shape.fault_s / 5)
        self.writers = [Writer(self.cluster, "writer-1", keys=self.shape.keys, pause_s=0.15)]
        self.readers = [Reader(self.cluster, f"reader-{n}") for n in range(1, self.shape.readers + 1)]
        self.busy: dict[str, int] = {}
        self.fragile = False
        """A machine lost its page cache and has not caught up yet: no other fault may come on top."""

    def run(self) -> Verdict:
        cluster = self.cluster
        noticed = _Noticed(cluster)
        root = logging.getLogger()
        root.addHandler(noticed)
        try:
            with probes.watching(cluster):
                try:
                    cluster.loop.run(self._life())
                except SimulationStuck as error:
                    cluster.history.complete = False
                    cluster.history.failures.append(f"stuck: {error}")
                except Exception as error:  # a log that cannot be read, or a mistake of this simulation
                    cluster.history.complete = False
                    cluster.history.failures.append(f"cannot be judged: {traceback.format_exc()}{error!r}")
        finally:
            root.removeHandler(noticed)
        history = cluster.history
        history.failures += [f"unhandled: {line}" for line in cluster.loop.failures]
        history.failures += [f"log: {line}" for line in noticed.bugs]
        fired = cluster.fired + cluster.network.fired + cluster.zookeeper.fired
        for machine in cluster.machines.values():
            fired += machine.disk.fired
        return Verdict(
            self.seed,
            checkers.judge(history),
            history,
            fired,
            cluster.steps,
            cluster.now(),
            self.operator.resized,
            noticed.lines,
        )

    # --- the phases

    async def _life(self) -> None:
        cluster = self.cluster
        await cluster.start()
        await self.operator.create()
        for application in (*self.writers, *self.readers, self.operator):
            application.start()
        await asyncio.sleep(0.5)
        await self._faults()
        await self._heal()
        cluster.history.complete = await self._converge()
        if cluster.history.complete:
            await self._collect()

    async def _faults(self) -> None:
        cluster, rng, shape = self.cluster, self.rng, self.shape
        end = cluster.now() + shape.fault_s
        kinds = list(shape.weights)
        while cluster.now() < end:
            await asyncio.sleep(rng.expovariate(1 / shape.pace_s))
            if not kinds or cluster.now() >= end or self.fragile:
                continue
            for _ in range(rng.choice((1, 1, 1, 2, 3))):  # bursts: faults that meet are the interesting ones
                kind = rng.choices(kinds, [shape.weights[one] for one in kinds])[0]
                if kind in ONE_AT_A_TIME and not self._quiet():
                    continue
                cluster.loop.spawn(None, self._fault(kind), kind)
                if kind in ONE_AT_A_TIME:
                    break
                await asyncio.sleep(rng.random() * 0.05)

    async def _fault(self, kind: str) -> None:
        self.busy[kind] = self.busy.get(kind, 0) + 1
        try:
            if await FAULTS[kind](self):
                self.cluster.fired[f"fault: {kind}"] += 1
        finally:
            self.busy[kind] -= 1

    def _quiet(self) -> bool:
        """Whether nothing is wrong at all: every node up, every replica in sync, no fault under way."""
        return (
            not any(self.busy.values())
            and all(
                machine.up and not machine.disk.full and not machine.disk.lying
                for machine in self.cluster.machines.values()
            )
            and all(len(state.isr) == len(self.cluster.brokers) for _, state in self.cluster.states())
        )

    async def _heal(self) -> None:
        cluster = self.cluster
        cluster.tell("all faults end")
        while any(self.busy.values()):
            await asyncio.sleep(0.1)
        cluster.network.heal_all()
        cluster.zookeeper.watch_delay_ms = 0
        for machine in cluster.machines.values():
            cluster.zookeeper.mend(machine.host)
            cluster.thaw(machine.node_id)
            machine.disk.full = machine.disk.lying = False
            machine.disk.die_in_append = None
            machine.failpoint = ""
            if not machine.up:
                cluster.boot(machine.node_id)

    async def _converge(self) -> bool:
        cluster = self.cluster
        for writer in self.writers:
            writer.stopping = True
        if not await cluster.until(
            lambda: self.operator.task is not None and self.operator.task.done(), CONVERGENCE_S, "resizes end"
        ):
            return False
        if not await cluster.until(
            lambda: all(w.task is not None and w.task.done() for w in self.writers),
            CONVERGENCE_S,
            "the writers' records are settled",
        ):
            return False
        if not await cluster.until(cluster.in_sync, CONVERGENCE_S, "all replicas are in sync"):
            cluster.history.failures[-1] += "; " + "; ".join(self._laggards())
            return False
        if not await cluster.until(self._all_delivered, CONVERGENCE_S, "every record is delivered and committed"):
            cluster.history.failures[-1] += "; " + "; ".join(self._undelivered())
            return False
        # Leaders may have moved back to where they are preferred meanwhile.
        return await cluster.until(cluster.in_sync, CONVERGENCE_S, "all replicas are in sync again")

    def _laggards(self) -> Iterator[str]:
        for machine in self.cluster.machines.values():
            if not machine.up:
                yield f"{machine.host} is down"
        for place, state in self.cluster.states():
            replicas = [self.cluster.replica(machine.node_id, *place) for machine in self.cluster.brokers]
            ends = [None if one is None else one.log.log_end_offset for one in replicas]
            if len(state.isr) < len(self.cluster.brokers) or len(set(ends)) > 1:
                yield f"{place}: {state.leader}@{state.leader_epoch} isr {list(state.isr)} ends {ends} {replicas}"

    def _ends(self) -> dict[tuple[str, int], int]:
        ends = {}
        for place, state in self.cluster.states():
            led = self.cluster.replica(state.leader, *place)
            if place[0] == TOPIC and led is not None:
                ends[place] = led.log.log_end_offset
        return ends

    def _committed(self) -> dict[tuple[str, int], int]:
        """What the members of the group were told is committed: by an answer, or by where they are to begin."""
        committed: dict[tuple[str, int], int] = {}
        for begun in self.cluster.history.begun:
            committed[begun.place] = max(begun.offset, committed.get(begun.place, 0))
        for commit in self.cluster.history.commits:
            if commit.outcome == "ok":
                for place, offset in commit.offsets.items():
                    committed[place] = max(offset, committed.get(place, 0))
        return committed

    def _all_delivered(self) -> bool:
        committed = self._committed()
        return all(committed.get(place, 0) >= end for place, end in self._ends().items())

    def _undelivered(self) -> Iterator[str]:
        committed = self._committed()
        for place, end in self._ends().items():
            if committed.get(place, 0) < end:
                yield f"{place}: {committed.get(place, 0)} of {end}"
        for reader in self.readers:
            if reader.consumer is not None and reader.consumer._started:
                assigned = sorted(reader.consumer.assignment())
                yield f"{reader.identity}: gates {reader.consumer.gates()}, assigned {assigned}"

    async def _collect(self) -> None:
        """Read what stands in the logs."""
        cluster, history = self.cluster, self.cluster.history
        for place, state in cluster.states():
            led = cluster.replica(state.leader, *place)
            assert led is not None
            contents = {}
            for machine in cluster.brokers:
                replica = cluster.replica(machine.node_id, *place)
                if replica is not None:
                    assert machine.process is not None
                    try:
                        read = machine.process.context.copy().run(_content, replica.log, led.high_watermark)
                    except KafkaError as error:
                        history.failures.append(f"the log of {place} on {machine.host} cannot be read: {error}")
                        continue
                    contents[machine.node_id] = read
            history.replicas[place] = contents
            if place[0] != TOPIC:
                continue
            data = contents.get(state.leader, b"")
            for start, header in iter_batches(data):
                for index, record in enumerate(iter_records(data[start : start + header.size_bytes])):
                    history.stored.append(
                        Stored(
                            place,
                            record.offset,
                            header.partition_leader_epoch,
                            (record.key or b"").decode(),
                            (record.value or b"").decode(),
                            header.producer_id,
                            header.producer_epoch,
                            header.base_sequence + index,
                        )
                    )


def _content(log: Any, end: int) -> bytes:
    """A log's bytes from its start to an offset."""
    chunks = []
    offset = log.log_start_offset
    while offset < end:
        data = bytes(log.read(offset, 1 << 20, limit_offset=end))
        if not data:
            break
        chunks.append(data)
        for _, header in iter_batches(data):
            offset = header.next_offset
    return b"".join(chunks)


class _Noticed(logging.Handler):
    """A line of the log with a traceback is a bug that somebody caught, and fails the run."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(logging.DEBUG)
        self._cluster = cluster
        self.bugs: list[str] = []
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get()
        name = "-" if process is None else process.name
        caught = record.exc_info is not None and record.exc_info[1] is not None and record.levelno >= logging.ERROR
        if caught and record.exc_info is not None and (process is None or process.alive):
            self.bugs.append(f"{name}: {record.getMessage()}: {record.exc_info[1]!r}")
        line = f"{record.levelname.lower()[:4]} {record.name}: {record.getMessage()}"
        self._cluster.tell(f"  {name} {line}")


# --- the fault menu. Each returns whether it fired.

Fault = Callable[["Schedule"], Awaitable[bool]]
FAULTS: Final[dict[str, Fault]] = {}


def fault(name: str) -> Callable[[Fault], Fault]:
    """Put a fault on the menu."""

    def enter(function: Fault) -> Fault:
        FAULTS[name] = function
        return function

    return enter


def _target(schedule: Schedule, *, brokers_only: bool = False) -> int:
    """A node that is up, chosen by its role: the controller, the leader of a partition, or anybody."""
    cluster, rng = schedule.cluster, schedule.rng
    up = [one.node_id for one in (cluster.brokers if brokers_only else cluster.machines.values()) if one.up]
    if not up:
        return 0
    role = rng.random()
    if role < 0.35 and cluster.active_controller() in up:
        return cluster.active_controller()
    if role < 0.7:
        leaders = sorted({state.leader for place, state in cluster.states() if state.leader in up})
        if leaders:
            return int(rng.choice(leaders))
    return int(rng.choice(up))


def _brokers_up(schedule: Schedule) -> int:
    return sum(machine.up for machine in schedule.cluster.brokers)


def _pause(schedule: Schedule) -> float:
    """Shorter than, about, and longer than the session timeout."""
    return float(schedule.rng.choice((0.1, 0.5, 1.5, 2.2, 3.5)) * (0.8 + 0.4 * schedule.rng.random()))


@fault("kill")
async def kill(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, _target(schedule)
    if not target:
        return False
    cluster.tell(f"kill node {target}")
    cluster.crash(target)
    await asyncio.sleep(_pause(schedule))
    cluster.boot(target)
    return True


@fault("kill all brokers")
async def kill_all(schedule: Schedule) -> bool:
    cluster = schedule.cluster
    cluster.tell("kill all brokers")
    for machine in cluster.brokers:
        cluster.crash(machine.node_id)
        await asyncio.sleep(schedule.rng.random() * 0.3)
    await asyncio.sleep(_pause(schedule))
    for machine in schedule.rng.sample(cluster.brokers, len(cluster.brokers)):
        cluster.boot(machine.node_id)
        await asyncio.sleep(schedule.rng.random())
    return True


@fault("stop in order")
async def stop_in_order(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, _target(schedule)
    if not target:
        return False
    cluster.tell(f"stop node {target}")
    await cluster.stop(target, within_s=schedule.rng.choice((0.02, 0.2, 4.0)))
    await asyncio.sleep(_pause(schedule) / 2)
    cluster.boot(target)
    return True


@fault("die in append")
async def die_in_append(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, _target(schedule, brokers_only=True)
    if not target:
        return False
    disk = cluster.machines[target].disk
    before = disk.fired["died in the middle of an append"]
    disk.die_in_append = lambda: cluster.crash(target)
    cluster.tell(f"node {target} will die in its next append")
    await asyncio.sleep(_pause(schedule))
    disk.die_in_append = None
    if not cluster.machines[target].up:
        cluster.boot(target)
    return disk.fired["died in the middle of an append"] > before


@fault("freeze")
async def freeze(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, _target(schedule)
    if not target:
        return False
    cluster.tell(f"freeze node {target}")
    process = cluster.machines[target].process
    cluster.freeze(target)
    await asyncio.sleep(_pause(schedule))
    if cluster.machines[target].process is process:
        cluster.tell(f"thaw node {target}")
        cluster.thaw(target)
    return True


@fault("expire session")
async def expire_session(schedule: Schedule) -> bool:
    target = _target(schedule)
    if not target:
        return False
    schedule.cluster.tell(f"expire the session of node {target}")
    return schedule.cluster.expire_session(target) > 0


@fault("unseat the controller")
async def unseat_controller(schedule: Schedule) -> bool:
    """Somebody deletes /controller, the documented way to force an election: the old one's session lives on."""
    zookeeper = schedule.cluster.zookeeper
    if paths.CONTROLLER not in zookeeper.tree.nodes:
        return False
    schedule.cluster.tell("delete /controller")
    zookeeper.watch_delay_ms = schedule.rng.choice((0, 300, 1500))
    zookeeper.write(lambda: zookeeper.tree.delete(paths.CONTROLLER, -1))
    await asyncio.sleep(1)
    zookeeper.watch_delay_ms = 0
    return True


@fault("cut off from zookeeper")
async def cut_from_zookeeper(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, _target(schedule)
    if not target:
        return False
    host = cluster.machines[target].host
    cluster.tell(f"cut {host} off from ZooKeeper")
    cluster.zookeeper.cut(host)
    await asyncio.sleep(_pause(schedule))
    cluster.tell(f"{host} reaches ZooKeeper again")
    cluster.zookeeper.mend(host)
    return True


@fault("delay watches")
async def delay_watches(schedule: Schedule) -> bool:
    zookeeper = schedule.cluster.zookeeper
    before = zookeeper.fired["watch delayed"]
    zookeeper.watch_delay_ms = schedule.rng.choice((50, 300, 1500))
    await asyncio.sleep(_pause(schedule))
    zookeeper.watch_delay_ms = 0
    return zookeeper.fired["watch delayed"] > before


@fault("partition")
async def partition(schedule: Schedule) -> bool:
    cluster, rng, target = schedule.cluster, schedule.rng, _target(schedule)
    if not target:
        return False
    host = cluster.machines[target].host
    others = [one.host for one in cluster.machines.values() if one.host != host]
    if rng.random() < 0.4:
        others = [rng.choice(others)]
    if rng.random() < 0.5:
        others += [one.name for one in (*schedule.readers, *schedule.writers)]
    one_way, inwards = rng.random() < 0.4, rng.random() < 0.5
    some, rest = ([host], others) if not inwards else (others, [host])
    arrow = ("from" if inwards else "to") if one_way else "and"
    cluster.tell(f"partition {host} {arrow} {', '.join(others)}")
    with_zookeeper = not one_way and rng.random() < 0.3
    if with_zookeeper:
        cluster.zookeeper.cut(host)
    cluster.partition(some, rest, one_way=one_way)
    await asyncio.sleep(_pause(schedule))
    for source in some:
        for other in rest:
            cluster.network.heal(source, other)
            cluster.network.heal(other, source)
    if with_zookeeper:
        cluster.zookeeper.mend(host)
    cluster.tell(f"heal {host}")
    return True


@fault("slow link")
async def slow_link(schedule: Schedule) -> bool:
    cluster, rng, target = schedule.cluster, schedule.rng, _target(schedule)
    if not target:
        return False
    host = cluster.machines[target].host
    other = rng.choice([one.host for one in cluster.machines.values() if one.host != host])
    before = cluster.network.fired["slow delivery"]
    for source, end in ((host, other), (other, host)):
        cluster.network.slow(source, end, rng.choice((20, 200, 800)))
    await asyncio.sleep(_pause(schedule))
    for source, end in ((host, other), (other, host)):
        cluster.network.slow(source, end, 0)
    return cluster.network.fired["slow delivery"] > before


@fault("reset connections")
async def reset_connections(schedule: Schedule) -> bool:
    target = _target(schedule)
    if not target:
        return False
    host = schedule.cluster.machines[target].host
    schedule.cluster.tell(f"reset connections of {host}")
    return schedule.cluster.network.reset_some(host, schedule.rng.choice((0.2, 1.0))) > 0


@fault("disk full")
async def disk_full(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, _target(schedule, brokers_only=True)
    if not target:
        return False
    disk = cluster.machines[target].disk
    before = disk.fired["no space left"]
    cluster.tell(f"the disk of node {target} is full")
    disk.full = True
    await asyncio.sleep(_pause(schedule))
    disk.full = False
    return disk.fired["no space left"] > before


@fault("power failure")
async def power_failure(schedule: Schedule) -> bool:
    """One machine loses its page cache. Without flushing, that is survived only if nothing else goes wrong.

    The active controller's machine is spared then: its successor cannot know that a broker which has registered again
    is not the one that has the records. Kafka has the same hole: without flushing, nothing in ZooKeeper tells them
    apart.
    """
    cluster = schedule.cluster
    target = _target(schedule, brokers_only=True)
    if not target or (target == cluster.active_controller() and not schedule.shape.flushes):
        return False
    schedule.fragile = True
    lies = schedule.rng.random() < 0.3 and target != cluster.active_controller()
    if lies:
        cluster.machines[target].disk.lying = True
        await asyncio.sleep(schedule.rng.random() * 2)
    cluster.tell(f"node {target} loses power")
    cluster.crash(target, power=True)
    cluster.machines[target].disk.lying = False
    await asyncio.sleep(_pause(schedule))
    cluster.boot(target)
    # Up means registered, which the session of the earlier life must have ended for: from then on its ISRs tell.
    deadline = cluster.now() + 20
    while cluster.now() < deadline and not (cluster.machines[target].up and _all_in_sync(schedule)):
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)
    while cluster.now() < deadline and not _all_in_sync(schedule):
        await asyncio.sleep(0.1)
    schedule.fragile = False
    return True


@fault("power failure everywhere")
async def power_failure_everywhere(schedule: Schedule) -> bool:
    """Only where every append is flushed."""
    cluster = schedule.cluster
    cluster.tell("all machines lose power")
    for machine in cluster.machines.values():
        cluster.crash(machine.node_id, power=True)
    await asyncio.sleep(_pause(schedule))
    for machine in schedule.rng.sample(list(cluster.machines.values()), len(cluster.machines)):
        cluster.boot(machine.node_id)
        await asyncio.sleep(schedule.rng.random() * 0.5)
    return True


def _all_in_sync(schedule: Schedule) -> bool:
    count = len(schedule.cluster.brokers)
    return all(len(state.isr) == count for _, state in schedule.cluster.states())


@fault("controller dies at a step")
async def controller_dies(schedule: Schedule) -> bool:
    """Arm a failpoint in every node, and make a controller live through it: failpoints hold from the next start on."""
    cluster, rng = schedule.cluster, schedule.rng
    point = rng.choice(list(STEPS))
    if rng.random() < 0.3:
        point = f"{point}:{rng.choice((1, 2))}"
    controller = cluster.active_controller()
    for machine in cluster.machines.values():
        machine.failpoint = point
    cluster.tell(f"controllers will die after {point}")
    if controller and cluster.machines[controller].up:
        cluster.crash(controller)
        await asyncio.sleep(0.2)
        cluster.boot(controller)
    before = cluster.fired.total()
    await asyncio.sleep(_pause(schedule) * 2)
    for machine in cluster.machines.values():
        machine.failpoint = ""
    return cluster.fired.total() > before


@fault("client dies")
async def client_dies(schedule: Schedule) -> bool:
    application = schedule.rng.choice([*schedule.readers, *schedule.writers])
    if not application.alive:
        return False
    schedule.cluster.tell(f"kill {application.identity}")
    application.kill()
    await asyncio.sleep(_pause(schedule) / 2)
    application.start()
    return True


@fault("client freezes")
async def client_freezes(schedule: Schedule) -> bool:
    application = schedule.rng.choice([*schedule.readers, *schedule.writers])
    process = application.process
    if process is None or process.frozen:
        return False
    schedule.cluster.tell(f"freeze {application.identity}")
    schedule.cluster.loop.freeze(process)
    await asyncio.sleep(_pause(schedule))
    if application.process is process:
        schedule.cluster.loop.thaw(process)
    return True
