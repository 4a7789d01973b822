"""Records the state of share partition leaders and share coordinators of a simulation, and kills them at a step.

`STEPS` are the moments at which something of a group has just come to outlive a process, or is about to. Whoever takes
the one that is armed dies on the spot.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from anabranch.broker.coordinators.groups.group_shards import GroupEntry
from anabranch.broker.coordinators.share_groups.share_heartbeat import ShareDecision
from anabranch.broker.coordinators.share_partitions.share_coordinator import ShareCoordinator
from anabranch.broker.coordinators.share_partitions.share_persister import SharePersister
from anabranch.broker.coordinators.share_partitions.shared_partitions import SharedPartitions
from anabranch.chaos.share_events import LetGo, Locked, Settled, StartKept
from tests.sim.cluster import SimCluster
from tests.sim.loop import PROCESS
from tests.sim.probes import wrap

DECIDED: Final = "group coordinator: before it tells a member what it has from now on"
STEPS: Final = (
    "leader: before it asks where the group stands",
    "leader: after it was told where the group stands",
    "leader: before it asks to store a change",
    "leader: after a change was stored",
    "leader: after it locked records",
    "leader: after a session ended",
    "coordinator: before it stores a change",
    "coordinator: after it stored a change",
    "coordinator: before it lets a life of the group begin",
    "coordinator: after it let a life of the group begin",
    "group coordinator: before it asks to let a life begin",
    "group coordinator: after a life began",
    DECIDED,
)
BEGINNINGS: Final = tuple(step for step in STEPS if "life" in step)
"""They are taken when the group gets its first members."""


class ShareProbes:
    """The wrappers."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._events = cluster.history.shares
        self.armed = ""
        """The step at which the next one dies."""
        self.killed = 0
        """The node that has died so."""
        self.reached: Counter[str] = Counter()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record, and kill, for as long as this lasts."""
        with contextlib.ExitStack() as stack:
            wrap(
                stack,
                (SharedPartitions, "acquire", self._acquire),
                (SharedPartitions, "release", self._release),
                (SharedPartitions, "_store", self._store),
                (GroupEntry, "take", self._decide),
                (SharePersister, "read", self._ask_read),
                (SharePersister, "write", self._ask_write),
                (SharePersister, "initialize", self._ask_initialize),
                (ShareCoordinator, "write", self._write),
                (ShareCoordinator, "initialize", self._initialize),
            )
            yield

    def _step(self, step: str) -> None:
        process = PROCESS.get()
        assert process is not None and step in STEPS
        self.reached[step] += 1
        if self.armed == step and process.alive:
            self.armed = ""
            self.killed = int(process.host.removeprefix("node-"))
            self._cluster.tell(f"{process.name} dies: {step}")
            self._cluster.crash(self.killed)
        process.must_live()

    def _leader(self) -> str:
        process = PROCESS.get()
        assert process is not None
        return process.name

    def _tick(self) -> int:
        return self._cluster.history.tick()

    # --- leaders

    def _acquire(self, original: Any, partitions: SharedPartitions, one: Any, member: str, **options: Any) -> Any:
        records, acquired = original(partitions, one, member, **options)
        place = one.partition.topic, one.partition.index
        for got in acquired:
            for offset in range(got.first, got.last + 1):
                row = Locked(self._tick(), self._leader(), place, one.leader_epoch, offset, member, got.delivery_count)
                self._events.inside.append(row)
        if acquired:
            self._cluster.tell(f"{place} e{one.leader_epoch}: locked {acquired} for {member}")
            self._step("leader: after it locked records")
        return records, acquired

    def _release(self, original: Any, partitions: SharedPartitions, group: str, member: str) -> None:
        original(partitions, group, member)
        self._events.inside.append(LetGo(self._tick(), self._leader(), member))
        self._cluster.tell(f"{self._leader()}: the session of {member} is over")
        self._step("leader: after a session ended")

    async def _store(self, original: Any, partitions: SharedPartitions, one: Any, batches: Any) -> None:
        await original(partitions, one, batches)
        place = one.partition.topic, one.partition.index
        if batches:
            self._cluster.tell(f"{place} e{one.leader_epoch}: settled {batches}")
        for batch in batches:
            row = Settled(
                self._tick(),
                self._leader(),
                place,
                one.leader_epoch,
                batch.first,
                batch.last,
                batch.state.terminal,
                batch.delivery_count,
            )
            self._events.inside.append(row)

    async def _ask_read(self, original: Any, persister: SharePersister, *asked: Any) -> Any:
        self._step("leader: before it asks where the group stands")
        told = await original(persister, *asked)
        self._kept(persister, *asked, told.start_offset, None)
        self._step("leader: after it was told where the group stands")
        return told

    async def _ask_write(self, original: Any, persister: SharePersister, *asked: Any, **options: Any) -> None:
        self._step("leader: before it asks to store a change")
        await original(persister, *asked, **options)
        self._step("leader: after a change was stored")

    async def _ask_initialize(self, original: Any, persister: SharePersister, *asked: Any) -> None:
        self._step("group coordinator: before it asks to let a life begin")
        await original(persister, *asked)
        self._step("group coordinator: after a life began")

    # --- coordinators

    async def _decide(self, original: Any, slot: GroupEntry, journal: Any, decision: Any, **more: Any) -> None:
        await original(slot, journal, decision, **more)
        told = decision.answer if isinstance(decision, ShareDecision) and decision.records else None
        if told is not None and told.assignment:
            self._step(DECIDED)

    async def _write(self, original: Any, coordinator: Any, key: Any, **change: Any) -> None:
        self._step("coordinator: before it stores a change")
        await original(coordinator, key, **change)
        shard, state = coordinator._find(key)
        if state is not None:
            self._kept(coordinator, key, change["leader_epoch"], state.start_offset, shard.leader_epoch)
        self._step("coordinator: after it stored a change")

    async def _initialize(self, original: Any, coordinator: Any, *asked: Any) -> None:
        self._step("coordinator: before it lets a life of the group begin")
        await original(coordinator, *asked)
        self._step("coordinator: after it let a life of the group begin")

    def _kept(self, where: Any, key: Any, leader_epoch: int, start: int, keeper_epoch: int | None) -> None:
        topic = where._metadata.topic_name(key.topic_id)
        if topic is not None and start >= 0:
            place, how = (topic, key.partition), "told" if keeper_epoch is None else "stored"
            self._cluster.tell(f"{self._leader()}: {how} that {place} starts at {start}")
            self._events.starts.append(StartKept(self._tick(), place, leader_epoch, start, keeper_epoch))
