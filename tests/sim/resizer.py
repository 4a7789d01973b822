"""The resizing and draining clients of the resize scenario, and the kinds of resizes that occurred.

The `Resizer` asks for one count after another: up, down, back before the first is published, below the initial count,
up again while what was merged away still drains, or after it is gone. The `Drainer` is the administrator who empties
partitions that were merged away with the product's own tool (`anabranch topics drain --delete-drained`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from typing import Final

from anabranch import Admin, NewTopic
from anabranch.chaos.resize_events import TopicWritten
from anabranch.inspect.draining import delete_read, draining
from anabranch.protocol import linear_hashing
from anabranch.protocol.errors import ErrorCode, KafkaError
from tests.sim.clients import CLIENT_FAILURES, GROUP, TOPIC, Operator
from tests.sim.cluster import SimCluster
from tests.sim.history import History

PLAIN: Final = "plain"
"""A topic that nobody resizes: whatever happens to the other one must not show in it."""
COUNTS: Final = range(1, 9)
PATIENCE_S: Final = 2.5

KINDS: Final = {
    "growth": "more partitions",
    "shrink": "fewer partitions",
    "merge": "partitions that an earlier resize split off go back into the one they came from",
    "undo": "back to the count before, while the first resize was under way or what it sealed still drained",
    "below the initial count": "merged further than the topic began with",
    "below the odd part": "merged so far that a partition holds keys that are not one residue of their hashes",
    "through the odd part": "from below it to above it, or back, at once",
    "growth while others drain": "more partitions while sealed ones still hold records",
    "sealed index used again": "a partition that was merged away takes records again, and keeps its log",
    "removal": "a drained partition is removed and leaves a tombstone",
    "removed index used again": "a new partition under the index of a removed one",
    "several levels at once": "a child whose parent, as linear hashing has it, is made by the same resize",
}


@dataclass(frozen=True)
class Step:
    """One resize. `waits`: until it is done; `for_removal`: first until drained partitions are removed."""

    count: int
    waits: bool
    for_removal: bool


def walk(rng: random.Random, length: int) -> tuple[int, list[Step]]:
    """An initial count, and resizes that go up and down from there."""
    first = rng.choice((1, 2, 3, 3, 4, 5, 6, 10))
    now, before, steps = first, first, []
    for _ in range(length):
        wanted = rng.choice([one for one in COUNTS if one != now])
        if before != now and rng.random() < 0.35:
            wanted = before
        steps.append(Step(wanted, waits=rng.random() < 0.7, for_removal=wanted > now and rng.random() < 0.5))
        before, now = now, wanted
    return first, steps


def growth(rng: random.Random, length: int) -> tuple[int, list[Step]]:
    """An initial count, and resizes that only go up."""
    first, *counts = sorted(rng.sample(COUNTS, length + 1))
    return first, [Step(one, waits=rng.random() < 0.7, for_removal=False) for one in counts]


class Resizer(Operator):
    """Creates the topic and resizes it. Requests that are not waited for meet in the controller."""

    def __init__(
        self, cluster: SimCluster, first: int, steps: list[Step], *, pause_s: float, patience_s: float = PATIENCE_S
    ) -> None:
        super().__init__(cluster, [first], pause_s=pause_s)
        self.steps = steps
        self.patience_s = patience_s

    async def _create(self) -> None:
        await super()._create()
        async with self._admin() as admin:
            plain = NewTopic(name=PLAIN, partitions=2, replication_factor=3)
            await admin.create_topics([plain])
            await admin.wait_for_topic(PLAIN, replicas=3)

    async def run(self) -> None:
        asked = []
        for step in self.steps:
            await asyncio.sleep(self.pause_s * (0.3 + self.rng.random()))
            if self.stopping:
                break
            if step.for_removal:
                await self._see_removed()
            task = asyncio.get_running_loop().create_task(self._resize(step.count))
            asked.append(task)
            if step.waits:
                await task
            else:
                await asyncio.sleep(self.rng.random() * 0.1)
        await asyncio.gather(*asked)

    async def _resize(self, count: int) -> None:
        while not self.stopping:
            try:
                async with self._admin() as admin:
                    await admin.create_partitions(self.topic, count, allow_shrink=True)
                self.resized += 1
                self.tell(f"resized to {count}")
                return
            except KafkaError as error:
                self.tell(f"resize to {count}: {error}")
                if error.code is ErrorCode.INVALID_PARTITIONS:
                    return  # it has that many: by an earlier attempt, or because another request came first
                if error.code is ErrorCode.POLICY_VIOLATION:
                    return  # stock consumers read it
            except CLIENT_FAILURES as error:
                self.tell(f"resize to {count}: {error}")
            await asyncio.sleep(0.3)

    async def _see_removed(self) -> None:
        deadline = self.cluster.now() + self.patience_s
        while self.cluster.now() < deadline and not self.stopping:
            body = dict(self.cluster.topics()).get(self.topic)
            if body is not None and body.plan is None and len(body.assignment) == body.undeleted_partition_count:
                return
            await asyncio.sleep(0.1)


class Drainer(Operator):
    """Deletes, again and again, what every group has read of partitions that were merged away."""

    def __init__(self, cluster: SimCluster, groups: set[str], *, pause_s: float) -> None:
        super().__init__(cluster, [], pause_s=pause_s, name="drainer")
        self.groups = {GROUP, *groups}

    async def create(self) -> None:
        """It has no topic of its own."""

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self.pause_s * (0.5 + self.rng.random()))
            body = dict(self.cluster.topics()).get(TOPIC)
            if body is None or body.plan is not None or len(body.assignment) == body.undeleted_partition_count:
                continue
            try:
                async with Admin(
                    self.cluster.bootstrap, request_timeout_ms=2000, rng=self.chance(f"{self.cluster.now()}")
                ) as admin:
                    states = [one for one in await draining(admin, TOPIC) if self.groups <= one.committed.keys()]
                    for line in await delete_read(admin, TOPIC, states, force=False):
                        self.tell(line)
            except (*CLIENT_FAILURES, ValueError) as error:
                self.tell(f"cannot drain: {error}")


def kinds_of(history: History) -> Counter[str]:
    """How often each kind of resize was carried out."""
    kinds: Counter[str] = Counter()
    last: dict[str, TopicWritten] = {}
    counts: dict[str, list[int]] = {}
    for row in history.resizes.topics:
        before = last.get(row.topic)
        last[row.topic] = row
        known = counts.setdefault(row.topic, [row.count])
        if before is None:
            continue
        if row.plan is not None and before.plan is None:
            kinds += _kinds_of_plan(row, before, known)
        if row.generation > before.generation:
            known.append(row.count)
    kinds["removal"] = len(history.resizes.retired)
    return +kinds


def _kinds_of_plan(row: TopicWritten, before: TopicWritten, counts: list[int]) -> Counter[str]:
    assert row.plan is not None
    _, now, wanted = row.plan
    sealed = {index for index in before.indices if index >= now}
    grown = set(range(now, wanted))
    kinds: Counter[str] = Counter(["growth" if wanted > now else "shrink"])
    kinds["merge"] = wanted < now and min(counts) < now
    kinds["undo"] = len(counts) > 1 and counts[-2] == wanted and (wanted < now or bool(sealed))
    kinds["below the initial count"] = wanted < row.initial
    kinds["growth while others drain"] = wanted > now and bool(sealed)
    kinds["sealed index used again"] = bool(grown & sealed)
    kinds["removed index used again"] = bool((grown & row.retired.keys()) - sealed)
    kinds["below the odd part"] = wanted < row.base
    kinds["through the odd part"] = min(now, wanted) < row.base < max(now, wanted)
    kinds["several levels at once"] = any(linear_hashing.parent(index, row.base) in grown for index in grown)
    return kinds
