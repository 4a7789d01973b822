"""A growing topic with stock members and perhaps a member with gates, under crashes.

The members are ours with their gates taken away: they read what they are assigned to its end, as consumers of other
makes do, and their coordinator holds the gates by what it assigns. Judged is what they were handed: first deliveries of
a key in the order in which its records were sent (I4), and in the end all that was acknowledged (I12).

    python -m tests.sim.growing [SEED] [--schedules 100]
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from anabranch import Consumer
from anabranch.broker.coordinators.groups.group_gates import GroupGates
from anabranch.chaos.checkers.order import b1_key_order
from anabranch.protocol.internal_topics import CONSUMER_OFFSETS_TOPIC
from tests.sim.clients import Application, Operator, Reader, Writer
from tests.sim.cluster import SimCluster
from tests.sim.probes import wrap
from tests.sim.processes import run_schedules, schedule_parser

GROWN: Final = "grown"
GROUP: Final = "strangers"
COUNTS: Final = ((1, 2, 4), (1, 2, 3, 5), (2, 4), (1, 4), (2, 3, 6), (3, 4, 6))
FAULTS: Final = (
    *("member dies", "member dies", "coordinator dies", "broker dies", "broker freezes", "link cut"),
    *("session expires", "zookeeper cut off"),
)
CONVERGENCE_S: Final = 60.0


class GrownWriter(Writer):
    """Our producer, whose generations make the topic an ordered one."""

    topic = GROWN


class Member(Reader):
    """A member of the group; a stranger's gates are taken away."""

    def __init__(self, cluster: SimCluster, name: str, *, stranger: bool, static: bool, strategy: str) -> None:
        super().__init__(cluster, name, strategy=(strategy,), slow=0.15)
        self.stranger = stranger
        self.static = static

    def _make(self) -> Consumer:
        consumer = Consumer(
            GROWN,
            bootstrap_servers=self.cluster.bootstrap,
            client_id=self.identity,
            group_id=GROUP,
            group_instance_id=self.name if self.static else None,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=self.rng.choice((200, 700)),
            session_timeout_ms=2000,
            rebalance_timeout_ms=3000,
            heartbeat_interval_ms=300,
            max_poll_records=self.rng.choice((1, 7, 500)),
            fetch_max_wait_ms=300,
            request_timeout_ms=2500,
            metadata_max_age_ms=1000,
            partition_assignment_strategy=self.strategy,
            ordered_delivery=not self.stranger,
            clock_ms=self.clock_ms,
            rng=self.chance("consumer"),
        )
        membership = consumer._core.membership
        assert membership is not None
        membership.holds_gates = not self.stranger
        return consumer


class Growing:
    """One schedule."""

    def __init__(self, seed: int, faults: Sequence[str] = FAULTS) -> None:
        self.faults = faults
        self.cluster = SimCluster(f"growing-{seed}", brokers=3, spares=0)
        rng = self.rng = self.cluster.rng("schedule")
        self.fired: Counter[str] = Counter()
        counts = list(rng.choice(COUNTS))
        self.operator = Operator(self.cluster, counts, pause_s=1.5, topic=GROWN)
        self.writer = GrownWriter(self.cluster, "writer", keys=rng.choice((4, 10)), pause_s=0.1)
        strategy = rng.choice(("range", "roundrobin", "cooperative-sticky"))
        strangers = [True] * rng.choice((1, 2, 3)) + [False] * rng.choice((0, 0, 1))
        self.members = [
            Member(self.cluster, f"member-{place}", stranger=one, static=rng.random() < 0.3, strategy=strategy)
            for place, one in enumerate(strangers)
        ]
        self.fired["schedules with members of both kinds"] += not all(strangers)

    def run(self) -> list[str]:
        """The violations."""
        with contextlib.ExitStack() as stack:
            wrap(stack, (GroupGates, "refresh", self._looked), (GroupGates, "is_due", self._due))
            self.cluster.loop.run(self._life())
        history = self.cluster.history
        return [*history.failures, *self.cluster.loop.failures, *b1_key_order(history)]

    def _looked(self, original: Any, gates: GroupGates, slot: Any) -> None:
        original(gates, slot)
        self.fired["withheld"] += len(slot.withheld)

    def _due(self, original: Any, gates: GroupGates, slot: Any) -> bool:
        due: bool = original(gates, slot)
        self.fired["opened"] += due
        return due

    async def _life(self) -> None:
        cluster = self.cluster
        await cluster.start()
        await self.operator.create()
        everybody: list[Application] = [self.writer, *self.members, self.operator]
        for one in everybody:
            one.start()
        suffering = asyncio.ensure_future(self._suffer())
        await cluster.until(
            lambda: self.operator.task is not None and self.operator.task.done(), 60, "the topic is grown"
        )
        await asyncio.sleep(1)
        suffering.cancel()
        cluster.end_faults()
        for one in (self.writer, *self.members):
            one.start()
        self.writer.stopping = True
        await cluster.until(self._all_handed_out, CONVERGENCE_S, "every record is handed out")

    def _all_handed_out(self) -> bool:
        history = self.cluster.history
        stored = {send.value for send in history.sends if send.outcome == "ok"}
        return not self.writer.outstanding and stored <= {one.value for one in history.deliveries}

    async def _suffer(self) -> None:
        cluster, rng = self.cluster, self.rng
        while True:
            await asyncio.sleep(rng.uniform(0.3, 1.2))
            what = rng.choice(self.faults)
            self.fired[what] += 1
            cluster.tell(what)
            if what == "member dies":
                victim = rng.choice(self.members)
                if victim.alive:
                    victim.kill()
                await asyncio.sleep(rng.choice((0.1, 1.0, 2.5)))
                victim.start()
                continue
            coordinator = cluster.leader(CONSUMER_OFFSETS_TOPIC, 0)
            node = (
                coordinator if what == "coordinator dies" and coordinator > 0 else rng.choice(cluster.brokers).node_id
            )
            if not cluster.machines[node].up:
                continue
            if what == "broker freezes":
                await cluster.freeze_for(node, rng.choice((0.5, 2.5)))
            elif what == "session expires":
                cluster.expire_session(node)
            elif what == "zookeeper cut off":
                await cluster.cut_off_for(node, rng.choice((0.5, 2.0)))
            elif what == "link cut":
                others = [one.host for one in cluster.brokers if one.node_id != node]
                cluster.network.block(cluster.machines[node].host, rng.choice(others))
                await asyncio.sleep(1)
                cluster.network.heal_all()
            else:
                cluster.crash(node)
                await asyncio.sleep(rng.uniform(0.2, 1.5))
                cluster.boot(node)


def play(seed: int, *, faults: Sequence[str] = FAULTS, tell: bool = False) -> tuple[int, list[str], Counter[str]]:
    """Run one schedule."""
    one = Growing(seed, faults)
    violations = one.run()
    if tell:
        for at_s, line in one.cluster.history.story:
            print(f"{at_s:9.3f}  {line}")
    return seed, violations, one.fired


def main(arguments: list[str] | None = None) -> int:
    """Many seeds, or one with its story."""
    return run_schedules(play, schedule_parser("tests.sim.growing", __doc__).parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
