"""Aims at disks that damage one replica while the others are intact; see `aims`."""

from __future__ import annotations

from typing import Any, Final

from anabranch.protocol.records.batch import iter_batches
from tests.sim.aims import aim, calm
from tests.sim.aims_of_disks import BUSY, SHORT_SEGMENTS, within
from tests.sim.clients import TOPIC
from tests.sim.cluster import SimCluster

ROLLING: Final = {**BUSY, "flushes": False, "spares": 0, "brokers": 3, "writers": 4, "slow": 0.0}
CHECKED_FROM: Final = 21
"""The first byte of a batch that its checksum covers."""


def rot(cluster: SimCluster, node: int, place: tuple[str, int], rng: Any) -> bool:
    """Flip a bit of one batch in the last file of a replica's log; whether there is one that can be spared."""
    disk, directory = cluster.machines[node].disk, f"{place[0]}-{place[1]}"
    name = max((one for one in disk.directories.get(directory, ()) if one.endswith(".log")), default="")
    inode = disk.directories[directory][name] if name else None
    batches = [] if inode is None else list(iter_batches(bytes(inode.content)))
    if len(batches) < 2:
        return False
    start, header = rng.choice(batches)
    cluster.tell(f"a bit of the batch at {header.base_offset} of {place} rots on node {node}")
    disk.rot(f"{directory}/{name}", start + rng.randrange(CHECKED_FROM, header.size_bytes), rng.randrange(8))
    return True


@aim("a bit rots on a leader's disk while all brokers are dead", ROLLING)
async def rotten(schedule: Any) -> bool:
    """All replicas are in sync, and an undamaged one is registered before a controller is elected. The former
    controller's session outlives it.
    """
    cluster, rng, place = schedule.cluster, schedule.rng, (TOPIC, 0)
    node, controller = cluster.leader(*place), cluster.active_controller()
    if not calm(cluster) or node <= 0 or not controller:
        return False
    if controller == node:
        cluster.expire_session(controller)
        return False
    cluster.tell("kill all brokers")
    for machine in cluster.brokers:
        cluster.crash(machine.node_id)
    first = [machine.node_id for machine in cluster.brokers if machine.node_id != controller]
    for one in first:
        cluster.expire_session(one)
    rotted = rot(cluster, node, place, rng)
    for one in rng.sample(first, len(first)):
        cluster.boot(one)
    registered = await within(schedule, 1.5, lambda: all(cluster.machines[one].up for one in first))
    counted = registered and set(first) <= set(cluster.isr(*place)) and cluster.active_controller() == controller
    cluster.expire_session(controller)
    cluster.boot(controller)
    back = await within(schedule, 20, lambda: calm(cluster))
    return rotted and counted and back


@aim("a flush of a leader's log fails", ROLLING, settings=SHORT_SEGMENTS)
async def unflushable(schedule: Any) -> bool:
    """It refuses appends: another replica must lead until it has restarted and caught up."""
    cluster, place = schedule.cluster, (TOPIC, 0)
    node = cluster.leader(*place)
    if not calm(cluster) or node <= 0:
        return False
    disk = cluster.machines[node].disk
    before = disk.fired["flush failed"]
    cluster.tell(f"node {node} cannot flush {place}")
    disk.unflushable = f"{place[0]}-{place[1]}"
    failed = await within(schedule, 5, lambda: disk.fired["flush failed"] > before)
    if failed:
        await cluster.until(lambda: cluster.leader(*place) not in (node, -1), 5, "another leads where a flush failed")
    disk.unflushable = ""
    cluster.tell(f"node {node} is started again")
    cluster.crash(node)
    cluster.boot(node)
    await within(schedule, 10, lambda: calm(cluster))
    return failed
