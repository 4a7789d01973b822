"""Aims at logs on machines whose power fails at a bad moment; see `aims`."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.sim.aims import aim, calm
from tests.sim.clients import TOPIC


@aim(
    "the power fails everywhere after a resize",
    {"copiers": 0, "flushes": True, "keys": 8, "readers": 1, "fault_s": 8.0, "spares": 1},
    resizing=True,
)
async def dark_after_a_resize(schedule: Any) -> bool:
    """What began with a leader epoch is flushed, and so must be where it began: readers have yet to cross that."""
    cluster, rng = schedule.cluster, schedule.rng
    if await schedule.affected_place() is None:
        return False
    behind = [one.process for one in schedule.readers if one.process is not None]
    for process in behind:
        cluster.loop.freeze(process)
    await asyncio.sleep(0.8 + 2.5 * rng.random())
    cluster.tell("all machines lose power")
    for machine in cluster.machines.values():
        cluster.crash(machine.node_id, power=True)
    await asyncio.sleep(0.3 + rng.random())
    for machine in rng.sample(list(cluster.machines.values()), len(cluster.machines)):
        cluster.boot(machine.node_id)
    for process in behind:
        cluster.loop.thaw(process)
    await asyncio.sleep(2)
    return True


@aim(
    "a truncated log rolls and its power fails",
    {
        "copiers": 0,
        "flushes": False,
        "counts": [1],
        "keys": 8,
        "readers": 1,
        "fault_s": 8.0,
        "spares": 1,
        "writers": 8,
        "write_pause_s": 0.1,
    },
    settings={"log_segment_bytes": 500},
)
async def dark_after_a_truncation(schedule: Any) -> bool:
    """The shorter file of a segment, and the next one that begins where it ends now, are not on the disk together."""
    cluster, rng = schedule.cluster, schedule.rng
    if not calm(cluster):
        return False
    places = [place for place, one in cluster.states() if place[0] == TOPIC and one.leader > 0]
    place = rng.choice(places)
    node = cluster.leader(*place)
    machine = cluster.machines[node]
    if node == cluster.active_controller() or not machine.up:
        return False
    others = [one.host for one in cluster.brokers if one is not machine]
    for other in others:
        cluster.network.block(machine.host, other)
    await asyncio.sleep(0.8 + 0.6 * rng.random())
    cluster.crash(node)
    cluster.expire_session(node)
    for other in others:
        cluster.network.heal(machine.host, other)
    await asyncio.sleep(0.3)
    before = cluster.fired["truncation"]
    cluster.boot(node)
    deadline = cluster.now() + 4
    while cluster.now() < deadline and cluster.fired["truncation"] == before:
        await asyncio.sleep(0.01)
    truncated = cluster.fired["truncation"] > before
    while cluster.now() < deadline and not (machine.up and cluster.all_in_isr()):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5 * rng.random())
    if not truncated or not cluster.all_in_isr() or node == cluster.active_controller():
        return False
    cluster.tell(f"node {node} loses power")
    cluster.crash(node, power=True)
    await asyncio.sleep(0.3 + rng.random())
    cluster.boot(node)
    deadline = cluster.now() + 20
    await asyncio.sleep(0.5)
    while cluster.now() < deadline and not (machine.up and cluster.all_in_isr()):
        await asyncio.sleep(0.1)
    return True
