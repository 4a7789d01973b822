"""The scenario of deleted records: a topic is resized continuously, and clients delete log heads.

Clients delete records at any step of a resize, beyond what groups have read, and partitions change their leaders then.
Retention by size and by time deletes, too. Two groups read, one of each protocol, or one with members of both. The
checkers know what was asked for; L2 holds that each group is handed what is left.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from anabranch import Admin
from anabranch.chaos import second_opinion
from anabranch.chaos.checkers import data_plane, groups, order
from tests.sim import resizing
from tests.sim.administration import as_administrator, delete_unread
from tests.sim.assigning import SETTINGS
from tests.sim.clients import COOPERATIVE, EAGER, TOPIC, Reader
from tests.sim.effects import missing
from tests.sim.faults import Fault, entering
from tests.sim.history import History, Place
from tests.sim.resizing import RESIZE_FAULTS, RESIZE_STEPS, ResizeSchedule, Shape
from tests.sim.schedule import Verdict

OTHERS: Final = "others"
"""The second group."""
DELETION_FAULTS: Final[dict[str, Fault]] = {}
WAIT_FOR_STEP_S: Final = 2.0


_fault: Final = entering(DELETION_FAULTS)


@_fault("records are deleted at a step of a resize")
async def at_a_step(schedule: DeletingSchedule) -> bool:
    """As soon as a controller has taken the step, in one of the affected partitions or in all."""
    cluster, rng = schedule.cluster, schedule.rng
    step = rng.choice(RESIZE_STEPS)
    known, deadline = cluster.steps[step], cluster.now() + WAIT_FOR_STEP_S
    while cluster.steps[step] == known:
        if cluster.now() >= deadline:
            return False
        await asyncio.sleep(0.002)
    places = some_of(schedule, list(readable(schedule)))
    done = [await _delete(schedule, place) for place in places]
    cluster.fired[f"records deleted at {step}"] += any(done)
    return any(done)


@_fault("records are deleted, and their partition gets another leader")
async def before_an_election(schedule: DeletingSchedule) -> bool:
    """The leader dies at once, so that not every follower has heard of the deletion, or when all have."""
    cluster, rng = schedule.cluster, schedule.rng
    places = list(readable(schedule))
    if not places:
        return False
    place = rng.choice(places)
    leader = cluster.leader(*place)
    if leader <= 0 or not cluster.machines[leader].up:
        return False
    deleting = asyncio.ensure_future(_delete(schedule, place))
    if rng.random() < 0.5:
        await asyncio.sleep(rng.random() * 0.02)
    else:
        await deleting
    cluster.tell(f"kill node {leader}, which leads {place[0]}-{place[1]}")
    cluster.crash(leader)
    if rng.random() < 0.5:
        cluster.expire_session(leader)
    await asyncio.sleep(rng.choice((0.3, 1.5, 3.0)))
    cluster.boot(leader)
    return await deleting


@_fault("retention by size")
async def retention_by_size(schedule: DeletingSchedule) -> bool:
    """For a while, the topic may have a segment file or two a partition."""
    return await _retain(schedule, "retention.bytes", str(schedule.rng.choice((0, 2000, 6000))), "-1")


@_fault("retention by time")
async def retention_by_time(schedule: DeletingSchedule) -> bool:
    """For a while, records of the topic expire after a moment."""
    return await _retain(schedule, "retention.ms", str(schedule.rng.choice((0, 500, 2000))), "604800000")


async def _retain(schedule: DeletingSchedule, name: str, value: str, after: str) -> bool:
    cluster = schedule.cluster
    if any(schedule.busy.get(one, 0) > 1 for one in ("retention by size", "retention by time")):
        return False
    known = cluster.fired["segment expired"]
    try:
        cluster.tell(f"{name}={value} for {TOPIC}")
        await _configure(schedule, name, value)
        await asyncio.sleep(schedule.rng.uniform(0.5, 2.0))
    finally:
        await _configure(schedule, name, after)
    return cluster.fired["segment expired"] > known


async def _configure(schedule: DeletingSchedule, name: str, value: str) -> bool:
    async def ask(admin: Admin) -> None:
        await admin.alter_configs(TOPIC, changes={name: value})

    return await as_administrator(schedule.cluster, ask, within_s=3)


def readable(schedule: DeletingSchedule) -> Iterator[Place]:
    """Partitions of the topic that hold records and are led."""
    for place, state in schedule.cluster.states():
        led = schedule.cluster.replica(state.leader, *place)
        if place[0] == TOPIC and led is not None and led.log.log_start_offset < led.high_watermark:
            yield place


def some_of(schedule: DeletingSchedule, places: list[Place]) -> list[Place]:
    """One of them, or all."""
    return places if not places or schedule.rng.random() < 0.3 else [schedule.rng.choice(places)]


async def _delete(schedule: DeletingSchedule, place: Place) -> bool:
    cluster, rng = schedule.cluster, schedule.rng
    led = cluster.replica(cluster.leader(*place), *place)
    if led is None or not led.log.log_start_offset < led.high_watermark:
        return False
    before = led.high_watermark if rng.random() < 0.2 else rng.randint(led.log.log_start_offset + 1, led.high_watermark)
    return await delete_unread(cluster, place, before, within_s=2)


OWN = ("deliveries", "read_starts", "callbacks", "died", "commits", "resets", "fetched")
"""The events of a group's members, in a history."""


class GroupHistory(History):
    """The history as one more group sees it: what its members did is its own, everything else is shared."""

    def __init__(self, main: History) -> None:
        shared = {one.name: getattr(main, one.name) for one in dataclasses.fields(History)}
        super().__init__(**{**shared, **{name: [] for name in OWN}})
        self._main = main

    def tick(self) -> int:
        """The next place in the one order of the run."""
        return self._main.tick()


class DeletingSchedule(ResizeSchedule):
    """One schedule."""

    @functools.cached_property
    def others(self) -> GroupHistory:
        """What the second group has seen."""
        return GroupHistory(self.cluster.history)

    def _changes(self) -> dict[str, Any]:
        return {**super()._changes(), **SETTINGS, "log_retention_check_interval_ms": 300}

    def _shape_of(self, rng: Any) -> Shape:
        shape = super()._shape_of(rng)
        weights = {kind: weight for kind, weight in shape.weights.items() if kind != "copier replaced"}
        deletions = {kind: 0.3 + rng.random() for kind in DELETION_FAULTS if rng.random() < 0.8}
        return dataclasses.replace(shape, weights={**weights, **deletions}, copiers=0)

    def _readers(self) -> list[Reader]:
        rng, history = self.cluster.rng("protocols"), self.cluster.history
        history.barriers = self.others.barriers = False
        readers, kinds = super()._readers(), rng.sample(("classic", "consumer", "mixed"), 2)
        others = [
            Reader(self.cluster, f"other-{n}", slow=self.shape.slow, group=OTHERS) for n in range(1, rng.choice((2, 3)))
        ]
        for one in others:
            one.history = self.others
        for kind, members in zip(kinds, (readers, others), strict=True):
            for number, one in enumerate(members):
                one.protocol = ("classic", "consumer")[number % 2] if kind == "mixed" else kind
                one.strategy = rng.choice((EAGER, COOPERATIVE)) if kind == "classic" else EAGER
        return [*readers, *others]

    @property
    def further_groups(self) -> Mapping[str, History]:
        return {OTHERS: self.others}

    def run(self) -> Verdict:
        verdict = super().run()
        if verdict.history.complete:
            self.others.complete, self.others.failures = True, []
            checks = {**groups.CHECKERS, **order.CHECKERS, "A4 unseen": data_plane.a4_unseen}
            verdict.violations += [
                f"{name}: {OTHERS}: {row}" for name, judge in checks.items() for row in judge(self.others)
            ]
            verdict.violations += [f"{row} ({OTHERS})" for row in second_opinion.judge_again(self.others)]
        return verdict

    @property
    def menu(self) -> Mapping[str, Fault]:
        return {**RESIZE_FAULTS, **DELETION_FAULTS}


def silent(fired: Counter[str], schedules: int) -> list[str]:
    """The faults that never happened, and the steps at which nothing was deleted."""
    wanted = [f"fault: {name}" for name in (*RESIZE_FAULTS, *DELETION_FAULTS) if name != "copier replaced"]
    wanted += [f"records deleted at {step}" for step in RESIZE_STEPS] if schedules >= EVERY_STEP else []
    return missing([*wanted, *(f"resize: {name}" for name in resizing.KINDS), "segment expired"], fired, schedules)


EVERY_STEP: Final = 200
"""Schedules in which records are deleted at each step, however they fall out."""
