"""State that moves to empty partitions, which are merged and removed before it moves on.

What `streaming` meets once in a while, on purpose: nothing is sent while the input grows and shrinks again, so that the
new partitions stay empty and are removed as soon as they are merged. Instances die, stop and start in between: some
have handed over, some have not, some do not live to hear of the second resize.

    python -m tests.sim.streaming --removals [SEED] [--schedules 300]
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from tests.sim.cluster import SimCluster
from tests.sim.loop import Process
from tests.sim.streaming import INPUT, Streaming

COUNTS: Final = (
    (1, 2, 1),
    (1, 3, 1),
    (2, 6, 2),
    (2, 5, 3, 2),
    (3, 5, 2, 3),
    (1, 2, 4, 1),
    (1, 4, 2, 1),
    (2, 4, 1, 2, 1),
)
REMOVED_S: Final = 30


class Removals(Streaming):
    """One such schedule."""

    def __init__(self, seed: int, directory: Path) -> None:
        super().__init__(seed, directory, resizes=False)
        self.counts = self.rng.choice(COUNTS)
        self.operator.counts = [self.counts[0]]

    async def _life(self) -> None:
        rng = self.rng
        await self.cluster.start()
        await self.operator.create()
        await self.output.create()
        for application in (self.feeder, *self.instances[: rng.randint(1, 3)]):
            application.start()
        for _ in range(rng.randint(1, 2)):
            await asyncio.sleep(rng.uniform(1, 4))
            await self._grow_and_shrink()
            self.feeder.resting = False
            await asyncio.sleep(rng.uniform(0, 2))
            if rng.random() < 0.5:
                await self._happen()
        await self._come_to_rest()

    async def _grow_and_shrink(self) -> None:
        cluster, rng = self.cluster, self.rng
        self.feeder.resting = True
        await cluster.until(lambda: not self.feeder.outstanding, 120, "all input is stored")
        for count in self.counts[1:]:
            await self._resize(count)
            await asyncio.sleep(rng.choice((0, 0.3, 1, 2)) * rng.random() * 2)
            await self._come_and_go()
        if rng.random() < 0.7:
            await removed(cluster, max(self.counts[0], self.counts[-1]))  # the first ones have records
            self.cluster.fired["removals"] += 1
        for instance in self.instances[: rng.randint(1, 3)]:
            instance.start()

    async def _come_and_go(self) -> None:
        for instance in self.instances:
            what = self.rng.choice(("kill", "kill", "stop", "start", "stay"))
            if what == "start":
                instance.start()
            elif what == "kill" and instance.alive:
                instance.kill()
            elif what == "stop" and instance.alive:
                await self._stopped(instance)

    async def _resize(self, count: int) -> None:
        await self.cluster.loop.spawn(Process("resizer", "resizer"), self.operator.resize(count), f"resize to {count}")


async def removed(cluster: SimCluster, count: int) -> bool:
    """Wait until the input has no other partitions than it should."""
    return await cluster.until(
        lambda: sum(topic == INPUT for topic, _ in cluster.assignments()) == count,
        REMOVED_S,
        "what was drained is removed",
    )
