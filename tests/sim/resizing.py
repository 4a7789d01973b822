"""The resize scenario: short schedules in which a topic is resized continuously under faults.

What differs from `schedule`: who resizes and drains (`resizer`), faults that wait for a resize to be under way, and
that every invariant is judged with what `resize_probes` saw. Disks and clocks are left to the other scenario.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from anabranch import Admin
from anabranch.broker.node.app import Node
from anabranch.chaos.checkers.invariants import INVARIANTS
from anabranch.chaos.checkers.transactions import COPIERS
from anabranch.clients.group_admin import commit_offsets, committed_offsets
from anabranch.controller.failpoints import STEPS
from anabranch.inspect.offset_reset import ResetTarget, new_offsets
from anabranch.protocol import linear_hashing
from anabranch.protocol.errors import KafkaError
from tests.sim import resize_probes, stock
from tests.sim.aims import Aim
from tests.sim.chores import Caretaker
from tests.sim.clients import CLIENT_FAILURES, COOPERATIVE, EAGER, GROUP, TOPIC, Operator
from tests.sim.cluster import SimCluster
from tests.sim.copiers import OUT, Auditor
from tests.sim.effects import missing
from tests.sim.faults import FAULTS, Fault, entering
from tests.sim.history import History, OffsetsReset
from tests.sim.loop import Process
from tests.sim.resizer import KINDS, Drainer, Resizer, kinds_of, walk
from tests.sim.schedule import Schedule, Shape, Verdict

DRAINED_CHECK_INTERVAL_MS: Final = 400
RESIZE_STEPS: Final = tuple(step for step in STEPS if step.startswith(("resize:", "remove:")))
BORROWED: Final = (
    "kill",
    "stop in order",
    "freeze",
    "expire session",
    "unseat the controller",
    "cut off from zookeeper",
    "delay watches",
    "partition",
    "slow link",
    "reset connections",
    "client dies",
    "client freezes",
    "application blocks",
    "copier replaced",
)
"""Faults of the other scenario."""
RESIZE_FAULTS: Final[dict[str, Fault]] = {name: FAULTS[name] for name in BORROWED}


_fault: Final = entering(RESIZE_FAULTS)


@_fault("controller fails in a resize")
async def controller_fails(schedule: ResizeSchedule) -> bool:
    """The next controller to take a step of a resize dies there, or freezes, or loses its session."""
    rng, machines = schedule.rng, list(schedule.cluster.machines.values())
    point = rng.choice(RESIZE_STEPS)
    if rng.random() < 0.5:
        point = f"{point}:{rng.choice((1, 1, 2, 3))}"
    how = rng.choice(("killed", "killed", "frozen", "expired"))
    for machine in machines:
        machine.failpoint, machine.at_failpoint = point, how
    schedule.cluster.tell(f"controllers will be {how} after {point}")
    await asyncio.sleep(2 + 2 * rng.random())
    unhurt = all(machine.failpoint == point for machine in machines)
    for machine in machines:
        machine.failpoint = ""
    return not unhurt


@_fault("leaders of affected partitions die one after another")
async def leaders_die(schedule: ResizeSchedule) -> bool:
    """During a plan: the leader of an affected partition, and perhaps the next one."""
    cluster, rng = schedule.cluster, schedule.rng
    place = await schedule.affected_place()
    if place is None:
        return False
    down = []
    for _ in range(rng.choice((1, 1, 2))):
        leader = cluster.leader(*place)
        if leader <= 0 or not cluster.machines[leader].up or leader in down:
            break
        cluster.tell(f"kill node {leader}, which leads {place[0]}-{place[1]}")
        cluster.crash(leader)
        down.append(leader)
        deadline = cluster.now() + 4
        while cluster.leader(*place) in (leader, -1) and cluster.now() < deadline:
            await asyncio.sleep(0.02)
        await asyncio.sleep(rng.random() * 0.3)
    for leader in down:
        cluster.boot(leader)
    return bool(down)


@_fault("a leader of an affected partition freezes")
async def leader_freezes(schedule: ResizeSchedule) -> bool:
    """It resumes later as a leader without knowledge of the resize."""
    cluster, rng = schedule.cluster, schedule.rng
    place = await schedule.affected_place()
    leader = -1 if place is None else cluster.leader(*place)
    if leader <= 0 or not cluster.machines[leader].up:
        return False
    cluster.tell(f"freeze node {leader}, which leads {place}")
    await cluster.freeze_for(leader, rng.choice((0.3, 1.0, 2.5, 3.5)))
    return True


@_fault("a leader dies with a tail that nobody else has")
async def tail_is_lost(schedule: ResizeSchedule) -> bool:
    """Its followers do not get it before a resize cuts the partition: the reported end is lost with the leader."""
    cluster, rng, controller = schedule.cluster, schedule.rng, schedule.cluster.active_controller()
    leaders = sorted({one.leader for place, one in cluster.states() if place[0] == TOPIC and one.leader > 0})
    leaders = [one for one in leaders if one != controller and cluster.machines[one].up]
    if not leaders:
        return False
    leader = rng.choice(leaders)
    host = cluster.machines[leader].host
    followers = [one.host for one in cluster.brokers if one.node_id not in (leader, controller)]
    for follower in followers:
        cluster.network.block(host, follower)
    place = await schedule.affected_place(within_s=1.0, led_by=leader)
    if place is not None:
        deadline = cluster.now() + 0.6
        while dict(cluster.topics())[TOPIC].plan is not None and cluster.now() < deadline:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05 + 0.25 * rng.random())
        cluster.tell(f"kill node {leader}, which leads {place[0]}-{place[1]}, and whose followers lag")
        cluster.crash(leader)
        await asyncio.sleep(2.5 + rng.random())
    for follower in followers:
        cluster.network.heal(host, follower)
    if place is not None:
        cluster.boot(leader)
    return place is not None


@_fault("offsets are reset with their lineage")
async def offsets_reset(schedule: ResizeSchedule) -> bool:
    """The members stop, an administrator resets one partition or all backwards, and they restart, as with `anabranch
    groups reset --reset-lineage`. Forward resets would lose records.
    """
    cluster, history = schedule.cluster, schedule.cluster.history
    if schedule.busy["offsets are reset with their lineage"] > 1:
        return False
    for reader in schedule.readers:
        reader.stopping = True
    deadline = cluster.now() + 3
    while cluster.now() < deadline and not all(one.task is None or one.task.done() for one in schedule.readers):
        await asyncio.sleep(0.02)
    for reader in schedule.readers:
        if reader.alive and reader.task is not None and not reader.task.done():
            reader.kill()
    try:
        done = await cluster.loop.spawn(Process("resetter"), _reset(schedule, deadline + 3))
    finally:
        for reader in schedule.readers:
            reader.stopping = False
            if reader.task is None or reader.task.done() or not reader.alive:
                reader.process = None
                reader.start()
    cluster.fired["descendant rewound"] += done and len(history.resets[-1].offsets) > 1
    return done


async def _reset(schedule: ResizeSchedule, deadline: float) -> bool:
    cluster, rng, history = schedule.cluster, schedule.rng, schedule.cluster.history
    chance = cluster.rng(f"resetter-{cluster.now()}")
    while cluster.now() < deadline:
        row = None
        try:
            async with Admin(cluster.bootstrap, request_timeout_ms=1500, rng=chance) as admin:
                before = {p.partition: at for p, at in (await committed_offsets(admin.network, GROUP)).items()}
                partition = rng.choice([None, *sorted(before)])
                to: ResetTarget = "earliest" if partition is None else rng.randint(0, before[partition])
                found = await new_offsets(admin, GROUP, TOPIC, partition, to, with_lineage=True)
                offsets = {(one.topic, one.partition): after for one, (_, after) in found.items()}
                row = OffsetsReset(history.tick(), GROUP, offsets)
                history.resets.append(row)
                await commit_offsets(admin.network, GROUP, {one: after for one, (_, after) in found.items()})
                row.outcome, row.answered_order = "ok", history.tick()
                cluster.tell(f"the offsets of {GROUP} are reset: {offsets}")
                return True
        except CLIENT_FAILURES as error:
            if row is not None and isinstance(error, KafkaError) and not error.code.retriable:
                row.outcome = "fail"
            cluster.tell(f"cannot reset offsets: {error!r}")
        await asyncio.sleep(0.2)
    return False


def shape_of(rng: Any) -> Shape:
    """Draw a schedule's character."""
    copiers = rng.choice((0, 0, 0, 0, 1, 1, 2))
    kinds = [kind for kind in RESIZE_FAULTS if copiers or kind != "copier replaced"]
    return Shape(
        spares=rng.choice((0, 1, 1, 2)),
        fault_s=rng.uniform(3, 6),
        counts=[],
        brokers=3,
        weights={kind: rng.random() ** 2 for kind in kinds if rng.random() < 0.6},
        chores={},
        pace_s=rng.choice((0.3, 0.6, 1.0)),
        readers=rng.choice((1, 2, 3)),
        keys=rng.choice((3, 8, 20)),
        flushes=False,
        copiers=copiers,
        aborts=rng.choice((0.0, 0.1, 0.4)),
        copies=rng.choice(([2], [1, 3], [3, 1, 2], [5, 2, 6])),
        write_pause_s=0.1,
        strategies=rng.choice(((EAGER,), (COOPERATIVE,), (EAGER, COOPERATIVE))),
    )


class ResizeSchedule(Schedule):
    """One run of the scenario."""

    def __init__(self, seed: int | str, aim: Aim | None = None) -> None:
        self.seed = f"resize-{seed}" if aim is None else f"{aim.name}-{seed}"
        self.aim = aim
        probe = SimCluster.__new__(SimCluster)
        probe.seed = self.seed
        self.rng = probe.rng("schedule")
        shape = self._shape_of(self.rng)
        shape = self.shape = shape if aim is None else aim.reshape(shape)
        self.cluster = SimCluster(self.seed, brokers=shape.brokers, spares=shape.spares, changes=self._changes())
        length = self.rng.choice((3, 4, 5, 6))
        pause_s = shape.fault_s / (length + 2)
        first, steps = walk(self.rng, length)
        groups = {*self.further_groups, *([COPIERS] if shape.copiers else ())}
        self.resizer = Resizer(self.cluster, first, steps, pause_s=pause_s)
        self.operators = [
            self.resizer,
            Drainer(self.cluster, groups, pause_s=self.rng.choice((0.3, 0.6, 1.2))),
        ]
        if shape.copiers:
            copies = Operator(self.cluster, shape.copies, pause_s=pause_s, topic=OUT, name="operator of copies")
            self.operators.append(copies)
        self.writers = self._writers()
        if aim is None:
            self._take_on_stock(probe.rng("stock"))
        self.readers = self._readers()
        self.caretaker = Caretaker(self.cluster, {}, pause_s=shape.pace_s)
        self.copiers = self._copiers()
        self.auditors = [Auditor(self.cluster, "auditor")] if self.copiers else []
        self.busy: dict[str, int] = {}
        self.fragile = False

    def _shape_of(self, rng: Any) -> Shape:
        return shape_of(rng)

    def _take_on_stock(self, rng: Any) -> None:
        if rng.random() >= stock.LIKELIHOOD:
            return
        policy, counts, pause_s = rng.choice(stock.POLICIES), stock.counts_of(rng), self.shape.write_pause_s * 2
        operator = stock.StockOperator(self.cluster, counts, policy, pause_s=self.shape.fault_s / (len(counts) + 1))
        self.operators.append(operator)
        base = linear_hashing.base_of(counts[0])
        self.writers.append(stock.StockWriter(self.cluster, "stock-writer", policy, base=base, pause_s=pause_s))
        if rng.random() < 0.6:
            self.writers.append(stock.Joining(self.cluster, "joining-writer", keys=4, pause_s=pause_s))
        self.cluster.history.unread.add(stock.STOCK)

    def run(self) -> Verdict:
        with removals_soon(), resize_probes.watching(self.cluster):
            verdict = super().run()
        for kind, times in kinds_of(verdict.history).items():
            verdict.fired[f"resize: {kind}"] = times
        verdict.fired += _met(verdict.history)
        for invariant in INVARIANTS:
            verdict.fired[f"judged: {invariant.name}"] = invariant.evidence(verdict.history)
        return verdict

    async def affected_place(self, *, within_s: float = 2.0, led_by: int = 0) -> tuple[str, int] | None:
        """A partition whose keys a resize moves that is under way; None if none comes up in time."""
        deadline = self.cluster.now() + within_s
        while self.cluster.now() < deadline:
            body = dict(self.cluster.topics()).get(TOPIC)
            if body is not None and body.plan is not None:
                moved = linear_hashing.affected_partitions(body.base, body.plan.before, body.plan.after)
                known = [
                    place
                    for place, state in self.cluster.states()
                    if place[0] == TOPIC and place[1] in moved and led_by in (0, state.leader)
                ]
                return self.rng.choice(known) if known else None
            await asyncio.sleep(0.01)
        return None

    @property
    def menu(self) -> Mapping[str, Fault]:
        return RESIZE_FAULTS


def silent(fired: Counter[str], schedules: int) -> list[str]:
    """The faults and kinds of resizes that never happened, and the invariants that had nothing to look at."""
    wanted = [f"fault: {name}" for name in RESIZE_FAULTS]
    wanted += [f"resize: {name}" for name in KINDS]
    wanted += [f"judged: {one.name}" for one in INVARIANTS]
    return missing([*wanted, *EFFECTS], fired, schedules)


EFFECTS: Final = (
    "stock: let in by auto",
    "stock: let in by allow",
    "stock: let in by verify",
    "stock: refused by auto",
    "stock: refused by refuse",
    "stock: refused by verify",
    "batch refused for its generation",
    "gate closed",
    "gate opened",
    "truncation",
    "failover",
    "member of the group killed",
    "member rebalanced eagerly",
    "member rebalanced cooperatively",
    "transaction committed",
    "transaction aborted",
    "descendant rewound",
)
"""What resizes have to meet."""


def _met(history: History) -> Counter[str]:
    met: Counter[str] = Counter()
    leaders: dict[tuple[str, int], int] = {}
    for row in history.led:
        if row.place[0] == TOPIC:
            met["failover"] += leaders.setdefault(row.place, row.node) != row.node
            leaders[row.place] = row.node
    for transaction in history.transactions:
        if transaction.outcome == "ok":
            met["transaction committed" if transaction.requested_end == "commit" else "transaction aborted"] += 1
    return +met


@contextlib.contextmanager
def removals_soon() -> Iterator[None]:
    """Controllers look for drained partitions more often than in life; there is no setting of the node for it."""
    original = Node._controller_settings

    def settings(node: Node) -> Any:
        return dataclasses.replace(original(node), drained_check_interval_ms=DRAINED_CHECK_INTERVAL_MS)

    Node._controller_settings = settings  # type: ignore[method-assign]
    try:
        yield
    finally:
        Node._controller_settings = original  # type: ignore[method-assign]
