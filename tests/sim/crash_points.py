"""Every crash point of a controller during resizes, combined with further failures.

One story: a topic is split into four, merged into two, drained until nothing is left of the others, and split again,
under load. A first run records every persistent step that the real controller takes, and every answer of a broker that
it hears: nobody wrote the list. Each point is then a run of its own, in which the controller fails there:

    none             it dies; another one finishes the work
    failover         it dies together with the leader of an affected partition, which its successor has to replace first
    second crash     it dies, and so does its successor, one of its first steps later
    zombie           it freezes, is replaced, and wakes up in the middle of what it was doing

Brokers and controllers are different nodes here, so that a crash of one is no crash of the other. Every run must
converge (I11), with the order of keys kept and all other invariants judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from anabranch.chaos import checkers
from anabranch.controller.channels import ControllerChannelManager
from anabranch.controller.events import ResponseReceived
from anabranch.controller.runner import Runner
from anabranch.protocol import linear_hashing
from anabranch.protocol.apis.update_metadata import UpdateMetadataRequest
from tests.sim import probes, resize_probes
from tests.sim.clients import TOPIC, Reader, Writer
from tests.sim.cluster import Machine, SimCluster
from tests.sim.ending import Ending
from tests.sim.loop import PROCESS, Process, ProcessKilled
from tests.sim.processes import pool
from tests.sim.resizer import Drainer, Resizer, Step
from tests.sim.resizing import removals_soon

CROSSES: Final = ("none", "failover", "second crash", "zombie")
FIRST: Final = 1
STEPS: Final = (
    Step(4, waits=True, for_removal=False),
    Step(2, waits=True, for_removal=False),
    Step(3, waits=True, for_removal=True),
)
HISTORY: Final = ((0, 1), (1, 4), (2, 2), (3, 3))
DOWN_S: Final = 3.0
"""How long a leader stays away: longer than sessions last, so that what is done meanwhile is done without it."""


@dataclass(frozen=True)
class Outcome:
    """What became of one run. `points` are all that were reached, `failed` the one at which the controller failed."""

    point: int
    cross: str
    points: tuple[str, ...]
    failed: str
    violations: tuple[str, ...]
    crashes: int


class CrashCluster(SimCluster):
    """Counts the points that controllers reach from `watch` on, and lets one of them fail."""

    def __init__(self, point: int, cross: str) -> None:
        super().__init__("crash points", brokers=3, spares=3)
        for machine in self.brokers:
            machine.settings = dataclasses.replace(machine.settings, roles=("broker",))
        self.point, self.cross = point, cross
        self.points: list[str] = []
        self.failed = ""
        self.crashes = 0
        self.watched = False
        self.sent = ""
        """What was put into a broker's queue last."""
        self._victims: set[int] = set()
        self._successor: tuple[int, int] | None = None
        """The successor's machine, once known, and how many steps it has left."""

    def _reached(self, machine: Machine, process: Process, point: str) -> None:
        super()._reached(machine, process, point)
        self.reach(machine, process, f"send:{self.sent}" if point == "send" else point)

    def reach(self, machine: Machine, process: Process, point: str) -> None:
        """A controller is at a point."""
        if not self.watched:
            return
        self.points.append(point)
        if len(self.points) == self.point:
            self.failed = point
            self._fail(machine, process)
        elif self.failed and self.cross == "second crash" and self.crashes == 1:
            node, left = self._successor or (machine.node_id, 1 + self.point % 6)
            self._successor = (node, left - 1)
            if left == 1:
                self._crash(machine, process, point)

    def _fail(self, machine: Machine, process: Process) -> None:
        self._victims.add(machine.node_id)
        if self.cross == "zombie":
            self.tell(f"{process.name} freezes at {self.failed}")
            self.freeze(machine.node_id)
            for_s = 1.5 * machine.settings.zookeeper_session_timeout_ms / 1000
            self.loop.call_later(for_s, self._thaw_that, machine, process)
            self.crashes += 1
            return
        if self.cross == "failover":
            self._leader_dies()
        self._crash(machine, process, self.failed)

    def _crash(self, machine: Machine, process: Process, point: str) -> None:
        self.tell(f"{process.name} dies at {point}")
        self.crashes += 1
        self.crash(machine.node_id)
        self.loop.spawn(None, self._return(machine.node_id, 0.5), f"return {machine.host}")
        raise ProcessKilled(point)

    def _leader_dies(self) -> None:
        body = dict(self.topics())[TOPIC]
        affected = [index for index in body.assignment if index >= body.undeleted_partition_count]
        if body.plan is not None:
            affected = linear_hashing.affected_partitions(body.base, body.plan.before, body.plan.after)
        leaders = [self.leader(TOPIC, index) for index in affected]
        leader = next((one for one in leaders if one > 0 and self.machines[one].up), 0)
        if not leader:
            return
        self.tell(f"node {leader}, which leads an affected partition, dies too")
        self.crash(leader)
        self.expire_session(leader)
        self.loop.spawn(None, self._return(leader, DOWN_S), f"return node-{leader}")

    async def _return(self, node_id: int, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self.boot(node_id)


@contextlib.contextmanager
def _answers_are_points(cluster: CrashCluster) -> Iterator[None]:
    original, original_send = Runner._decide, ControllerChannelManager.send

    def send(channels: ControllerChannelManager, broker_id: int, broker_epoch: int, request: Any) -> None:
        cluster.sent = _name(request)
        original_send(channels, broker_id, broker_epoch, request)

    async def decide(runner: Runner, event: Any) -> None:
        process = PROCESS.get()
        if (
            isinstance(event, ResponseReceived)
            and not isinstance(event.request, UpdateMetadataRequest)
            and process is not None
        ):
            machine = next(one for one in cluster.machines.values() if one.process is process)
            cluster.reach(machine, process, f"heard:{_name(event.request)}")
            process.must_live()
            while process.frozen:  # what a stopped process had begun goes on where it was
                await asyncio.sleep(0.01)
        await original(runner, event)

    Runner._decide, ControllerChannelManager.send = decide, send  # type: ignore[method-assign]
    try:
        yield
    finally:
        Runner._decide, ControllerChannelManager.send = original, original_send  # type: ignore[method-assign]


def _name(request: Any) -> str:
    return type(request).__name__.removesuffix("Request")


def run(point: int, cross: str) -> Outcome:
    """One story; point 0 is never reached, so nothing fails."""
    cluster = CrashCluster(point, cross)
    history = cluster.history
    with removals_soon(), probes.watching(cluster), resize_probes.watching(cluster), _answers_are_points(cluster):
        try:
            cluster.loop.run(_story(cluster))
        except Exception as error:  # a log that cannot be read, or a mistake of this simulation
            history.complete = False
            history.failures.append(f"cannot be judged: {error!r}")
    history.failures += [f"unhandled: {line}" for line in cluster.loop.failures]
    published = [one.history for one in history.published if one.topic == TOPIC]
    if not published or published[-1] != HISTORY:
        history.failures.append(f"L1 no convergence: the topic's history is {published[-1:]}")
    indices = {index for name, index in cluster.assignments() if name == TOPIC}
    if indices != {0, 1, 2}:
        history.failures.append(f"L1 no convergence: the topic has the partitions {sorted(indices)}")
    violations = tuple(checkers.judge(history))
    return Outcome(point, cross, tuple(cluster.points), cluster.failed, violations, cluster.crashes)


async def _story(cluster: CrashCluster) -> None:
    resizer = Resizer(cluster, FIRST, list(STEPS), pause_s=0.5, patience_s=30)
    drainer = Drainer(cluster, set(), pause_s=0.4)
    writer = Writer(cluster, "writer-1", keys=6, pause_s=0.1)
    readers = [Reader(cluster, f"reader-{number}") for number in (1, 2)]
    await cluster.start()
    await resizer.create()
    cluster.watched = True
    for application in (writer, *readers, resizer, drainer):
        application.start()
    assert resizer.task is not None
    await asyncio.wait([resizer.task], timeout=60)
    await cluster.until(lambda: all(one.up for one in cluster.machines.values()), 20, "all nodes are back")
    history = cluster.history
    ending = Ending(cluster, [writer], readers, (resizer, drainer))
    history.complete = await ending.converge()
    if history.complete:
        ending.collect()


def recorded() -> tuple[str, ...]:
    """Every point that there is, in the order of the story."""
    outcome = run(0, "none")
    assert not outcome.violations, outcome.violations
    return outcome.points


def every_run(points: tuple[str, ...]) -> list[tuple[int, str]]:
    """All points times all crosses."""
    return [(number, cross) for number in range(1, len(points) + 1) for cross in CROSSES]


def some_runs(points: tuple[str, ...], *, every_cross: bool) -> list[tuple[int, str]]:
    """Every kind of point, with every cross or one of them; which of the points of a kind differs by the cross."""
    numbers: dict[str, list[int]] = {}
    for number, name in enumerate(points, 1):
        numbers.setdefault(name, []).append(number)
    return [
        (known[place % len(known)], cross)
        for kind, known in enumerate(numbers.values())
        for place, cross in enumerate(CROSSES)
        if every_cross or place == kind % len(CROSSES)
    ]


def run_many(todo: list[tuple[int, str]], workers: Executor) -> Iterator[Outcome]:
    """Several of them, in order."""
    return workers.map(_run, todo, chunksize=4)


def _run(asked: tuple[int, str]) -> Outcome:
    return run(*asked)


def sweep(processes: int) -> int:
    """Visit every point with every cross, and print how many there were and what became of them."""
    began = time.monotonic()
    points = recorded()
    todo = every_run(points)
    print(f"{len(points)} points, {len(CROSSES)} crosses: {len(todo)} runs", flush=True)
    visited: Counter[tuple[str, str]] = Counter()
    guilty = []
    with pool(processes) as workers:
        for outcome in run_many(todo, workers):
            visited[outcome.failed, outcome.cross] += 1
            if outcome.violations or not outcome.failed:
                guilty.append(outcome)
                why = outcome.violations[0][:300] if outcome.violations else "the point was not reached"
                print(f"point {outcome.point} ({outcome.failed}) x {outcome.cross}: {why}", flush=True)
    names = list(dict.fromkeys(points))
    print(f"\n| point | times | {' | '.join(CROSSES)} |\n|---|---:|{'---:|' * len(CROSSES)}")
    for name in names:
        print(f"| {name} | {points.count(name)} | {' | '.join(str(visited[name, cross]) for cross in CROSSES)} |")
    took_s = time.monotonic() - began
    print(f"\n{len(todo)} runs in {took_s:.0f} s, {len(guilty)} with violations")
    return 1 if guilty else 0
