"""Members of one group share partitions record by record, with crashes in the middle of any step.

Members accept, release, reject, renew, forget what they hold and vanish; the topic may grow. A step is where something
of a group comes to outlive a process, or is about to: each is named, and whoever takes it dies there once in a while.
Judged is who held what (A44), that what has ended stays so (A42, A45), how often records were counted (A43, A46), that
the start never goes back (A47), and in the end that every record was dealt with or delivered as often as may be (A41).

    python -m tests.sim.sharing [SEED] [--schedules 100]
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Final

from anabranch.broker.coordinators.share_partitions.share_coordinator import ShareCoordinator, name_of
from anabranch.broker.coordinators.share_partitions.share_state import ShareKey, ShareState
from anabranch.chaos.checkers import shares
from anabranch.chaos.share_member import FAILURES, ShareMember, begin_at_earliest
from anabranch.chaos.share_readers import GROUP, SHARED, Handling
from anabranch.protocol.hashing import partition_of_group
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC, SHARE_STATE_TOPIC
from tests.sim.clients import Application, Operator, Writer
from tests.sim.cluster import SimCluster
from tests.sim.processes import run_schedules, schedule_parser
from tests.sim.schedule import listening
from tests.sim.share_probes import BEGINNINGS, DECIDED, STEPS, ShareProbes

STATE_PARTITIONS: Final = 2
LOCK_MS: Final = 1200
FAULTS: Final = (
    *(
        "member dies",
        "member dies",
        "member leaves",
        "member leaves for good",
        "dies at a step",
        "dies at a step",
        "dies at a step",
    ),
    *("leader dies", "share coordinator dies", "group coordinator dies", "broker freezes", "link cut"),
    *("session expires", "zookeeper cut off", "connections reset"),
)
CONVERGENCE_S: Final = 90.0
SETTINGS: Final = {
    "kafka_version": "4.2",
    "group_share_session_timeout_ms": 2000,
    "group_share_heartbeat_interval_ms": 300,
    "group_share_record_lock_duration_ms": LOCK_MS,
    "share_coordinator_state_topic_num_partitions": STATE_PARTITIONS,
}


class SharedOperator(Operator):
    """Creates the topic, and lets the group begin with its first record."""

    async def _create(self) -> None:
        await super()._create()
        await begin_at_earliest(self.cluster.bootstrap[0], GROUP)


class SharedWriter(Writer):
    """Writes what the group shares."""

    topic = SHARED


class Sharer(Application):
    """A member that takes its time, and is not always content with what it gets."""

    def __init__(self, cluster: SimCluster, name: str, *, content: float) -> None:
        super().__init__(cluster, name)
        self.content = content
        self.leaving = False

    async def run(self) -> None:
        while not self.stopping:
            self.leaving = False
            member = ShareMember(
                self.cluster.bootstrap,
                GROUP,
                self.identity,
                SHARED,
                rng=self.chance("member"),
                request_timeout_ms=2500,
                heartbeat_s=0.3,
            )
            handling = Handling(
                self.identity, member, self.history, self.rng, now_s=self.cluster.now, lock_s=LOCK_MS / 1000
            )
            beating = asyncio.create_task(member.beat_forever())
            while not self.stopping and not self.leaving:
                try:
                    await handling.turn(self.content)
                except FAILURES as error:
                    self.tell(f"goes on after {error!r}")
                    await asyncio.sleep(0.1)
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await member.close()
            self.life += 1


class Sharing:
    """One schedule."""

    def __init__(self, seed: int, faults: Sequence[str] = FAULTS) -> None:
        self.faults = faults
        probe = SimCluster.__new__(SimCluster)
        probe.seed = f"sharing-{seed}"
        rng = self.rng = probe.rng("schedule")
        limit = rng.choice((2, 3, 5, 10))
        changes = {
            **SETTINGS,
            "group_share_delivery_count_limit": limit,
            "group_share_partition_max_record_locks": rng.choice((100, 300, 2000)),
            "share_coordinator_snapshot_update_records_per_snapshot": rng.choice((2, 10, 500)),
        }
        self.cluster = SimCluster(probe.seed, brokers=3, spares=0, changes=changes)
        self.cluster.history.shares.delivery_limit = limit
        self.cluster.history.shares.topics.add(SHARED)
        self.fired: Counter[str] = Counter()
        self.probes = ShareProbes(self.cluster)
        partitions = rng.choice((1, 1, 2, 3))
        counts = [partitions, *rng.choice(((), (), (partitions + 1,), (partitions * 2,)))]
        self.operator = SharedOperator(self.cluster, counts, pause_s=4, topic=SHARED)
        self.places = [(SHARED, index) for index in range(counts[-1])]
        self.writer = SharedWriter(self.cluster, "writer", keys=5, pause_s=0.1)
        content = rng.choice((0.5, 0.8, 0.95))
        self.members = [
            Sharer(self.cluster, f"member-{place}", content=content) for place in range(rng.choice((1, 2, 3, 4)))
        ]

    def run(self) -> list[str]:
        """The violations."""
        history = self.cluster.history
        with listening(self.cluster) as noticed, self.probes.watching():
            self.cluster.loop.run(self._life())
        history.failures += noticed.bugs
        self.fired += self.probes.reached
        self.fired["handed out"] += len(history.shares.handed)
        self.fired["handed out again"] += sum(one.count > 1 for one in history.shares.handed)
        self.fired["accepted"] += sum((one.verdict, one.outcome) == ("accept", "ok") for one in history.shares.judged)
        self.fired["refused"] += sum(one.outcome == "fail" for one in history.shares.judged)
        judged = [
            line for check in shares.CHECKERS.values() for line in map(f"{check.__name__}: {{}}".format, check(history))
        ]
        return [*history.failures, *self.cluster.loop.failures, *judged]

    async def _life(self) -> None:
        cluster = self.cluster
        await cluster.start()
        await self.operator.create()
        everybody: list[Application] = [self.operator, self.writer, *self.members]
        for one in everybody:
            one.start()
        suffering = asyncio.ensure_future(self._suffer())
        await asyncio.sleep(self.rng.uniform(6, 14))
        suffering.cancel()
        self.probes.armed = ""
        cluster.end_faults()
        await cluster.until(
            lambda: self.operator.task is not None and self.operator.task.done(), CONVERGENCE_S, "the topic has grown"
        )
        self.fired["topic grows"] += self.operator.resized
        self.writer.stopping = True
        for member in self.members:
            member.content = 1.0
            member.start()
        await cluster.until(self._all_done, CONVERGENCE_S, "every record is dealt with")

    def _all_done(self) -> bool:
        return not self.writer.outstanding and all(self._left(place) == 0 for place in self.places)

    def _left(self, place: tuple[str, int]) -> int:
        led = self.cluster.replica(self.cluster.leader(*place), *place)
        state = self._state(place)
        if led is None or state is None:
            return -1
        return led.log.log_end_offset - max(state.start_offset, 0)

    def _state(self, place: tuple[str, int]) -> ShareState | None:
        topics = dict(self.cluster.topics())
        key = ShareKey(GROUP, topics[place[0]].topic_id, place[1])
        keeper = self.cluster.leader(SHARE_STATE_TOPIC, partition_of_group(name_of(key), STATE_PARTITIONS))
        node = self.cluster.machines[keeper].node if keeper > 0 and self.cluster.machines[keeper].up else None
        coordinator: ShareCoordinator | None = None if node is None else node.services.shares.coordinator
        if coordinator is None:
            return None
        return next((shard.states[key] for shard in coordinator.shards() if key in shard.states), None)

    # --- faults ----------------------------------------------------------------------------------------------------

    async def _suffer(self) -> None:
        cluster, rng = self.cluster, self.rng
        if "dies at a step" in self.faults and rng.random() < 0.4:
            await self._at_a_step(rng.choice(BEGINNINGS))
        while True:
            await asyncio.sleep(rng.uniform(0.2, 1.2))
            what = rng.choice(self.faults)
            self.fired[what] += 1
            cluster.tell(what)
            if what.startswith("member"):
                await self._member(what)
            elif what == "dies at a step":
                await self._at_a_step(rng.choice(STEPS))
            else:
                await self._node(what)

    async def _member(self, what: str) -> None:
        if what == "member leaves for good":
            if len(self.members) > 1:
                self.members.pop(self.rng.randrange(len(self.members))).stopping = True
                await self._at_a_step(DECIDED)
            return
        victim = self.rng.choice(self.members)
        if what == "member leaves":
            victim.leaving = True
            return
        if victim.alive:
            victim.kill()
        await asyncio.sleep(self.rng.choice((0.1, 1.0, 2.5)))
        victim.start()

    async def _at_a_step(self, step: str) -> None:
        self.probes.armed, self.probes.killed = step, 0
        for _ in range(20):
            await asyncio.sleep(0.1)
            if self.probes.killed:
                self.fired[f"died: {step}"] += 1
                await asyncio.sleep(self.rng.uniform(0.1, 1.5))
                self.cluster.boot(self.probes.killed)
                break
        self.probes.armed = ""

    def _victim(self, what: str) -> int:
        role = {
            "leader dies": self.rng.choice(self.places),
            "share coordinator dies": (SHARE_STATE_TOPIC, self.rng.randrange(STATE_PARTITIONS)),
            "group coordinator dies": (CONSUMER_OFFSETS_TOPIC, 0),
        }.get(what, self.rng.choice((self.places[0], (SHARE_STATE_TOPIC, 0))))
        leader = self.cluster.leader(*role)
        return leader if leader > 0 else self.rng.choice(self.cluster.brokers).node_id

    async def _node(self, what: str) -> None:
        cluster, rng = self.cluster, self.rng
        node = self._victim(what)
        machine = cluster.machines[node]
        if not machine.up:
            return
        if what == "broker freezes":
            await cluster.freeze_for(node, rng.choice((0.5, 2.5, 4.0)))
        elif what == "session expires":
            cluster.expire_session(node)
        elif what == "zookeeper cut off":
            await cluster.cut_off_for(node, rng.choice((0.5, 2.0, 3.0)))
        elif what == "link cut":
            others = [one.host for one in cluster.brokers if one.node_id != node]
            hosts = [*others, *(one.host for one in self.members)]
            for host in rng.sample(hosts, rng.choice((1, 2))):
                cluster.partition([machine.host], [host], one_way=rng.random() < 0.3)
            await asyncio.sleep(rng.choice((0.5, 1.5, 3.0)))
            cluster.network.heal_all()
        elif what == "connections reset":
            cluster.network.reset_some(machine.host, rng.choice((0.3, 1.0)))
        else:
            cluster.crash(node)
            await asyncio.sleep(rng.uniform(0.2, 2.5))
            cluster.boot(node)


def play(seed: int, *, faults: Sequence[str] = FAULTS, tell: bool = False) -> tuple[int, list[str], Counter[str]]:
    """Run one schedule."""
    one = Sharing(seed, faults)
    with contextlib.ExitStack() as stack:
        if tell:
            stack.callback(lambda: print("\n".join(f"{at:9.3f}  {line}" for at, line in one.cluster.history.story)))
        return seed, one.run(), one.fired


def main(arguments: list[str] | None = None) -> int:
    """Many seeds, or one with its story."""
    return run_schedules(play, schedule_parser("tests.sim.sharing", __doc__).parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
