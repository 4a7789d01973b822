"""A node is restored while its last ZooKeeper session lives.

It is killed, and starts from a copy of its data directory. ZooKeeper counts its session as alive for longer than the
node's own timeout: the session had a longer one, or ZooKeeper was restored, too, and begins to count anew. Until that
ends, the node must wait: it may neither give up nor serve, and others may go on without it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.sim.faults import target_of

if TYPE_CHECKING:
    from tests.sim.schedule import Schedule

FAULT: Final = "a node is restored while its session lives"
LIVES_S: Final = (3.0, 5.0, 7.0)
"""How long the session lives without its client; the node's own timeout is 2 s."""
UP_WITHIN_S: Final = 5.0
"""After the session's end."""


async def node_is_restored(schedule: Schedule) -> bool:
    """Whether it was up in time, as the process that had waited."""
    cluster, rng, target = schedule.cluster, schedule.rng, target_of(schedule)
    if not target:
        return False
    machine, lives_s = cluster.machines[target], rng.choice(LIVES_S)
    assert machine.process is not None
    cluster.zookeeper.prolong(machine.process, lives_s)
    cluster.tell(f"kill node {target}, whose session lives for {lives_s} s, and restore it")
    cluster.crash(target)
    machine.disk.restore()
    await asyncio.sleep(rng.random())
    cluster.boot(target)
    deadline = cluster.now() + lives_s + UP_WITHIN_S
    await asyncio.sleep(0.1)
    waiting = machine.process
    while not machine.up and cluster.now() < deadline:
        await asyncio.sleep(0.1)
    return machine.up and machine.process is waiting
