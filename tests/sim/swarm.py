"""The swarm scenario: each seed switches features off, and draws how likely each of the others is.

One distribution for all seeds keeps rare meetings rare: every schedule does a little of everything. Here a seed leaves
out whole faults, chores and kinds of clients, and prefers some of the rest strongly, so that schedules differ as their
users do (swarm testing, Groce et al. 2012). It has the faults and chores of all other scenarios: disks and power during
resizes, reassignments and elections, deletions, retention, quotas, configurations, deleted offsets, recreated topics,
denied rights, moves between log directories, restored nodes, lost responses of ZooKeeper. Groups of all protocols, and
one of stock consumers, read one topic; a share group reads another one beside it. Copiers copy committed records in
transactions, in schedules that delete no unread records.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from anabranch import Admin
from anabranch.chaos import second_opinion
from anabranch.chaos.checkers import data_plane, groups, order, transactions
from anabranch.chaos.share_readers import SHARED
from anabranch.protocol.errors import ErrorCode
from tests.sim import access, log_directories, namesakes, restoring, stock_members
from tests.sim.administration import as_administrator, delete_offset, throttle
from tests.sim.aims import Aim
from tests.sim.assigning import SETTINGS
from tests.sim.chores import CHORES, Chore
from tests.sim.clients import COOPERATIVE, EAGER, GROUP, TOPIC, Reader
from tests.sim.cluster import chance
from tests.sim.deleting import DELETION_FAULTS, GroupHistory
from tests.sim.effects import missing
from tests.sim.faults import FAULTS, Fault, entering
from tests.sim.history import History, OffsetsReset
from tests.sim.liveness import LogReader
from tests.sim.phases import SHORT, Phases
from tests.sim.resizing import RESIZE_FAULTS, ResizeSchedule, Shape
from tests.sim.schedule import Schedule, Verdict
from tests.sim.sharing import SETTINGS as SHARE_SETTINGS
from tests.sim.sharing import SharedOperator, SharedWriter, Sharer

PROTOCOLS: Final[Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]]] = {
    "eager": (("classic", EAGER),),
    "cooperative": (("classic", COOPERATIVE),),
    "consumer": (("consumer", EAGER),),
    "changing": (("classic", COOPERATIVE), ("consumer", EAGER)),
}
"""The protocols and assignors that the members of a group have, in turn."""
DELIVERY_LIMIT: Final = 5
HARMLESS: Final = frozenset(
    {
        "a client is throttled",
        "a client sleeps long",
        "application blocks",
        "client dies",
        "client freezes",
        "configurations change",
        "copier replaced",
        "offsets are deleted",
        "offsets are reset with their lineage",
        "reset connections",
        "slow link",
        access.FAULT,
        namesakes.FAULT,
    }
)
"""Faults that take no replica away, so that they may meet a machine that lost unflushed records."""
MOMENT_WITHIN_S: Final = 2.0
"""How long a fault or chore waits for a phase of a resize; then it begins all the same."""
ZOOKEEPER_DELAYS_MS: Final = ((0.3, 4.0), (0.3, 4.0), (4.0, 40.0))
"""Each way. A slow ensemble makes the phases of a resize longer."""
COPIER_FAULT: Final = "copier replaced"
"""Only schedules with copiers have it. Those have no deletions of unread records, which would tear transactions."""
SWARM_CHORES: Final[dict[str, Chore]] = {name: one for name, one in CHORES.items() if name != "delete records"}
"""Records that one group has committed are unread by others: `DELETION_FAULTS` has their deletion."""
SWARM_CHORES[log_directories.CHORE] = log_directories.move_between_directories
SWARM_CHORES[namesakes.CHORE] = namesakes.replace
ADMINISTRATION: Final[dict[str, Fault]] = {}


_fault: Final = entering(ADMINISTRATION)


@_fault("a client is throttled")
async def client_throttled(schedule: SwarmSchedule) -> bool:
    """By a quota of bytes or of time for all clients, for a while."""
    cluster, rng = schedule.cluster, schedule.rng
    name, value = rng.choice(
        (("producer_byte_rate", 300.0), ("consumer_byte_rate", 500.0), ("request_percentage", 1.0))
    )
    done = await as_administrator(cluster, lambda admin: throttle(admin, name, value), within_s=2)
    await asyncio.sleep(rng.choice((0.5, 2.0)))
    removed = await as_administrator(cluster, lambda admin: throttle(admin, name, None), within_s=20)
    return done and removed


@_fault("configurations change")
async def configurations_change(schedule: SwarmSchedule) -> bool:
    """Segments become short, or replicas may leave the ISR."""
    cluster, rng = schedule.cluster, schedule.rng
    name, value = rng.choice((("segment.bytes", "1000"), ("flush.messages", "1"), ("max.message.bytes", "500000")))

    async def change(admin: Admin) -> None:
        await admin.alter_configs(TOPIC, changes={name: value})

    return await as_administrator(cluster, change, within_s=3)


@_fault("offsets are deleted")
async def offsets_deleted(schedule: SwarmSchedule) -> bool:
    """Of a group that reads the topic: refused while it has members. Without members it would start over."""
    cluster, rng = schedule.cluster, schedule.rng
    group = rng.choice([GROUP, *schedule.further_groups])
    awake = [one for one in schedule.readers if one.group == group and _is_member(one)]
    places = [place for place in cluster.assignments() if place[0] == TOPIC]
    if not awake or not places:
        return False
    index = rng.choice(places)[1]
    history = schedule.further_groups.get(group, cluster.history)
    row = OffsetsReset(history.tick(), group, {(TOPIC, index): 0}, with_lineage=False)
    history.resets.append(row)  # without an answer it may have been done

    async def ask(admin: Admin) -> None:
        answer = await delete_offset(admin, group, TOPIC, index)
        row.answered_order = history.tick()
        row.outcome = "ok" if answer is ErrorCode.NONE else "fail"

    await as_administrator(cluster, ask, within_s=0)
    return row.outcome != "info"


def _is_member(reader: Reader) -> bool:
    frozen = reader.process is None or reader.process.frozen
    return reader.alive and not frozen and reader.consumer is not None and bool(reader.consumer.assignment())


@_fault("a client sleeps long")
async def client_sleeps(schedule: SwarmSchedule) -> bool:
    """Longer than every timeout of its group and of its requests."""
    cluster, rng = schedule.cluster, schedule.rng
    application = rng.choice(schedule.clients)
    process = application.process
    if process is None or process.frozen or not process.alive:
        return False
    cluster.tell(f"freeze {application.identity} for long")
    cluster.loop.freeze(process)
    await asyncio.sleep(rng.uniform(4, 9))
    if application.process is process:
        cluster.loop.thaw(process)
    return True


ADMINISTRATION[access.FAULT] = access.right_is_taken_away
ADMINISTRATION[restoring.FAULT] = restoring.node_is_restored
ADMINISTRATION[namesakes.FAULT] = namesakes.response_is_lost
SWARM_FAULTS: Final[dict[str, Fault]] = {**FAULTS, **RESIZE_FAULTS, **DELETION_FAULTS, **ADMINISTRATION}


def swarm(seed: int | str, what: str, kinds: Iterable[str]) -> dict[str, float]:
    """The weights of some of these kinds: how many, and how unequal, the seed decides.

    Each kind has a source of chance of its own, so a new kind changes only the schedules that it is in.
    """
    rng = chance(seed, what)
    share, bias = rng.choice((0.1, 0.3, 0.6, 0.9)), rng.choice((1, 2, 4))
    draws = {kind: chance(seed, f"{what}/{kind}") for kind in kinds}
    return {kind: draw.random() ** bias for kind, draw in draws.items() if draw.random() < share}


class SwarmSchedule(ResizeSchedule):
    """One schedule."""

    def __init__(self, seed: int | str, aim: Aim | None = None) -> None:
        super().__init__(f"swarm-{seed}", aim)
        self.caretaker.weights, self.caretaker.menu = dict(self.shape.chores), SWARM_CHORES
        self._share()
        if self.stock_members is not None:
            self.stock_members.restrict(self.resizer)
        if self.authorizes:
            self.operators.insert(0, access.RightsOperator(self.cluster))
        self.cluster.zookeeper.delay_ms = self.cluster.rng("zookeeper's delay").choice(ZOOKEEPER_DELAYS_MS)
        self.phases = Phases(self.cluster)
        self._moments = self.cluster.rng("moments")
        self._patience = self._moments.choice((0.0, 0.4, 0.8))
        """How often a fault or chore waits for a short phase of a resize."""
        alone = self.cluster.rng("alone").random() < 0.5
        self.standalone = [LogReader(self.cluster, "standalone")] if alone else []

    @functools.cached_property
    def authorizes(self) -> bool:
        """Whether brokers authorize clients, so that one can lose a right."""
        return chance(self.seed, "rights").random() < 0.5

    @functools.cached_property
    def log_directories(self) -> tuple[str, ...]:
        """Where brokers have their logs, if in several directories."""
        return log_directories.DIRECTORIES if chance(self.seed, "log directories").random() < 0.4 else ()

    @functools.cached_property
    def further_groups(self) -> Mapping[str, History]:
        """The groups beside the one that all checkers judge, with what each has seen."""
        groups: dict[str, History] = {name: GroupHistory(self.cluster.history) for name in self._kinds if name != GROUP}
        if self.stock_members is not None:
            groups[stock_members.GROUP] = self.stock_members.history
        return groups

    @functools.cached_property
    def stock_members(self) -> stock_members.StockMembers | None:
        """The group of stock consumers, if there is one."""
        rng = self.cluster.rng("stock members")
        if rng.random() >= stock_members.LIKELIHOOD:
            return None
        return stock_members.StockMembers(self.cluster, rng, slow=self.shape.slow)

    @functools.cached_property
    def _kinds(self) -> dict[str, str]:
        rng = self.cluster.rng("groups")
        kinds = rng.sample(sorted(PROTOCOLS), rng.choice((1, 2, 3)))
        return dict(zip((GROUP, "g2", "g3"), kinds, strict=False))

    def _changes(self) -> dict[str, Any]:
        return {
            **super()._changes(),
            **SETTINGS,
            **SHARE_SETTINGS,
            **(access.SETTINGS if self.authorizes else {}),
            "log_dirs": self.log_directories,
            "group_share_delivery_count_limit": DELIVERY_LIMIT,
            "log_retention_check_interval_ms": 300,
        }

    def _shape_of(self, rng: Any) -> Shape:
        flushes = rng.random() < 0.45  # there, power failures meet everything else
        without = {COPIER_FAULT} if flushes else {COPIER_FAULT, "power failure everywhere"}
        without |= set() if self.authorizes else {access.FAULT}
        shape = super()._shape_of(rng)
        weights = swarm(self.seed, "faults", [kind for kind in SWARM_FAULTS if kind not in without])
        if flushes:  # for their sake
            weights["power failure"] = 0.5
        if shape.copiers:
            weights = {kind: weight for kind, weight in weights.items() if kind not in DELETION_FAULTS}
            weights[COPIER_FAULT] = 0.3
        done = [name for name in SWARM_CHORES if name != log_directories.CHORE or self.log_directories]
        chores = swarm(self.seed, "chores", done)
        return dataclasses.replace(shape, weights=weights, chores=chores, flushes=flushes)

    def _readers(self) -> list[Reader]:
        found = []
        for group, kind in self._kinds.items():
            rng = self.cluster.rng(f"members-{group}")
            history = self.further_groups.get(group, self.cluster.history)
            history.barriers = kind in ("eager", "cooperative")
            static = rng.random() < 0.3
            for number in range(rng.choice((1, 2, 3))):
                protocol, strategy = PROTOCOLS[kind][number % len(PROTOCOLS[kind])]
                name = f"{group}-reader-{number}"
                one = Reader(
                    self.cluster, name, slow=self.shape.slow, group=group, protocol=protocol, strategy=strategy
                )
                one.history = history
                one.instance_id = name if static else None
                found.append(one)
        return [*found, *(self.stock_members.members if self.stock_members is not None else ())]

    def _share(self) -> None:
        """A group shares another topic. A41 is not judged: it needs what leaders know, and a run until all is done."""
        rng = self.cluster.rng("shares")
        self.sharers: list[Sharer] = []
        if rng.random() < 0.5:
            return
        history, partitions = self.cluster.history, rng.choice((1, 2))
        history.unread.add(SHARED)
        history.shares.delivery_limit = DELIVERY_LIMIT
        self.operators.append(
            SharedOperator(
                self.cluster, [partitions, partitions + 1], pause_s=2, topic=SHARED, name="operator of shares"
            )
        )
        self.writers.append(SharedWriter(self.cluster, "shared-writer", keys=4, pause_s=self.shape.write_pause_s * 2))
        self.sharers = [Sharer(self.cluster, f"sharer-{n}", content=0.8) for n in range(rng.choice((1, 2)))]

    @property
    def clients(self) -> list[Any]:
        return [*super().clients, *self.sharers, *self.standalone]

    @property
    def protocols(self) -> set[str]:
        shares, alone = {"share"} if self.sharers else set(), {"standalone"} if self.standalone else set()
        return super().protocols | shares | alone

    def stands_alone(self, kind: str) -> bool:
        """What every append has flushed survives the power failures of several machines, and other faults beside."""
        return super().stands_alone(kind) and not self.shape.flushes

    def is_harmless(self, kind: str) -> bool:
        return kind in HARMLESS

    def _quiet(self) -> bool:
        """Resizes never rest here; one that is under way survives a power failure, too."""
        return not any(times for kind, times in self.busy.items() if not self.is_harmless(kind)) and self._is_whole()

    def _is_whole(self) -> bool:
        machines = self.cluster.machines.values()
        disks_work = all(one.up and not one.disk.full and not one.disk.lying for one in machines)
        return disks_work and self.cluster.all_in_isr()

    async def await_moment(self, kind: str) -> None:
        if self._moments.random() < self._patience:
            await self.phases.begins(self._moments.choice(SHORT), within_s=MOMENT_WITHIN_S)

    async def _fault(self, kind: str, happens: Fault) -> None:
        if not self.stands_alone(kind):
            return await super()._fault(kind, happens)
        self.fragile = True
        try:
            await super()._fault(kind, self._while_whole(happens))
        finally:
            self.fragile = False

    def _while_whole(self, happens: Fault) -> Fault:
        """The fault, unless a replica has been lost while it waited for its moment."""

        async def happens_if_whole(schedule: Schedule) -> bool:
            return self._is_whole() and await happens(schedule)

        return happens_if_whole

    async def _heal(self) -> None:
        await super()._heal()
        if self.authorizes:
            await asyncio.sleep(0.5)  # a request to deny something may have been held up by a link
            await access.give_back(self.cluster)

    def run(self) -> Verdict:
        with log_directories.short_steps():
            verdict = super().run()
        if verdict.history.complete:
            for group, history in self.further_groups.items():
                verdict.violations += self._judge(group, history)
        return verdict

    def _judge(self, group: str, history: History) -> list[str]:
        """The violations in what a further group has seen."""
        history.complete, history.failures = True, []
        stock = self.stock_members if group == stock_members.GROUP else None
        checks = {**groups.CHECKERS, "A4 unseen": data_plane.a4_unseen}
        checks["A30 offset-goes-back"] = transactions.a30_offset_goes_back
        checks["A49 served-without-right"] = data_plane.a49_served_without_right
        if stock is None:
            checks |= order.CHECKERS
        elif stock.keeps_order:
            checks["B1 key-order"] = order.b1_key_order
        found = [f"{name}: {group}: {row}" for name, judge in checks.items() for row in judge(history)]
        if stock is None or stock.keeps_order:
            found += [f"{row} ({group})" for row in second_opinion.judge_again(history)]
        return found

    @property
    def menu(self) -> Mapping[str, Fault]:
        return SWARM_FAULTS


def silent(fired: Counter[str], schedules: int) -> list[str]:
    """The faults and chores that never happened."""
    wanted = [*(f"fault: {name}" for name in SWARM_FAULTS), *(f"chore: {name}" for name in SWARM_CHORES)]
    return missing(wanted, fired, schedules // 4)
