"""Aims at logs of machines with a power failure; see `aims`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from anabranch.broker.replication.partition import Role
from anabranch.broker.storage.checkpoints import RECOVERY_POINTS, decode_checkpoint
from anabranch.controller.zk import paths
from tests.sim import log_directories
from tests.sim.aims import aim, calm
from tests.sim.clients import TOPIC
from tests.sim.cluster import SimCluster

SHORT_SEGMENTS: Final = {"log_segment_bytes": 500}
BUSY: Final = {
    "copiers": 0,
    "counts": [1],
    "keys": 8,
    "readers": 1,
    "fault_s": 8.0,
    "spares": 1,
    "writers": 8,
    "write_pause_s": 0.1,
}
"""One partition, and a log that rolls all the time."""


async def within(schedule: Any, limit_s: float, condition: Any) -> bool:
    """Whether something comes about soon enough."""
    deadline = schedule.cluster.now() + limit_s
    while not condition():
        if schedule.cluster.now() >= deadline:
            return False
        await asyncio.sleep(0.01)
    return True


async def _dies_with_a_tail(schedule: Any, place: tuple[str, int], node: int) -> int:
    """Kill a leader with unreplicated records; return its log end."""
    cluster, machine = schedule.cluster, schedule.cluster.machines[node]
    others = [one.host for one in cluster.brokers if one is not machine]
    for other in others:
        cluster.network.block(machine.host, other)
    await asyncio.sleep(0.8 + 0.6 * schedule.rng.random())
    replica = cluster.replica(node, *place)
    end: int = 0 if replica is None else replica.log.log_end_offset
    cluster.crash(node)
    cluster.expire_session(node)
    for other in others:
        cluster.network.heal(machine.host, other)
    return end


def _sealed(cluster: SimCluster, node: int, place: tuple[str, int], offset: int) -> bool:
    replica, forms = cluster.replica(node, *place), cluster.machines[node].disk.forms(RECOVERY_POINTS)
    if replica is None or not forms:
        return False
    behind = [one.base_offset for one in replica.log.segments if one.base_offset > offset]
    return bool(behind) and all(decode_checkpoint(one).get(place, 0) >= behind[0] for one in forms)


@aim(
    "the power fails everywhere before a leader with a tail is back",
    {**BUSY, "flushes": True, "write_pause_s": 0.4},
    settings=SHORT_SEGMENTS,
)
async def dark_before_a_return(schedule: Any) -> bool:
    """Records of the new leader epoch are on disk in unscanned segments, and so must be the epoch's start. The former
    leader truncates by it.
    """
    cluster, rng, place = schedule.cluster, schedule.rng, (TOPIC, 0)
    node = cluster.leader(*place)
    if not calm(cluster) or node <= 0:
        return False
    end = await _dies_with_a_tail(schedule, place, node)
    heirs = [one for one in cluster.assignments()[place] if one != node]
    elected = await within(schedule, 3, lambda: cluster.leader(*place) in heirs)
    heir = cluster.replica(cluster.leader(*place), *place) if elected else None
    begun = heir is not None and await within(schedule, 1, lambda: heir.is_leader)
    start = heir.leader_epoch_start_offset if begun and heir is not None else end

    def sealed_everywhere() -> bool:
        return all(_sealed(cluster, one, place, start) for one in heirs)

    def led_again() -> bool:
        return any((found := cluster.replica(one, *place)) is not None and found.is_leader for one in heirs)

    sealed = start < end and await within(schedule, 3.5, sealed_everywhere)
    cluster.tell("all machines lose power")
    for machine in cluster.machines.values():
        cluster.crash(machine.node_id, power=True)
    await asyncio.sleep(0.3 + rng.random())
    for one in rng.sample([one for one in cluster.machines if one != node], len(cluster.machines) - 1):
        cluster.boot(one)
    led = await within(schedule, 10, led_again)
    cluster.boot(node)
    await within(schedule, 5, lambda: cluster.machines[node].up and cluster.all_in_isr())
    return sealed and led


@aim(
    "a truncated log rolls and its power fails",
    {**BUSY, "flushes": False},
    settings=SHORT_SEGMENTS,
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
    await _dies_with_a_tail(schedule, place, node)
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


@aim(
    "a leader is back with less than a reader has, who still believes in it",
    {**BUSY, "flushes": False, "writers": 2, "write_pause_s": 0.2, "commit_intervals_ms": (100,), "pace_s": 0.4},
)
async def believed_in(schedule: Any) -> bool:
    """The follower lags: the reader's offset is beyond its end, and nothing is lost. The reader's metadata comes from
    the third broker, which does not know the election.
    """
    cluster, place, controller = schedule.cluster, (TOPIC, 0), schedule.cluster.active_controller()
    node = cluster.leader(*place)
    if not calm(cluster) or node <= 0 or not controller:
        return False
    heir, uninformed = [one for one in cluster.assignments()[place] if one != node]
    if controller in (node, heir):  # who tells of the election has to be heard, and must not lose what only he knows
        cluster.zookeeper.write(lambda: cluster.zookeeper.tree.delete(paths.CONTROLLER, -1))
        return False
    hosts = {one: machine.host for one, machine in cluster.machines.items()}
    readers = [one for one in schedule.readers if one.process is not None and one.alive]
    for reader in readers:
        cluster.loop.freeze(reader.process)
    cluster.network.slow(hosts[controller], hosts[uninformed], 3000)
    cluster.tell(f"node {node} loses power")
    cluster.crash(node, power=True)
    cluster.expire_session(node)
    elected = await within(schedule, 3, lambda: cluster.leader(*place) == heir)
    late = [(hosts[heir], hosts[node]), *((hosts[heir], reader.host) for reader in readers)]
    for link in late:
        cluster.network.block(*link)
    cluster.boot(node)

    def follows() -> bool:
        found = cluster.replica(node, *place)
        return found is not None and found.role is Role.FOLLOWER

    followed = await within(schedule, 3, follows)
    found = cluster.replica(node, *place)
    read = max((one.offset for one in cluster.history.deliveries if one.place == place), default=-1)
    short = found is not None and found.log.log_end_offset <= read
    for reader in readers:
        cluster.loop.thaw(reader.process)
    await asyncio.sleep(0.5 + 0.5 * schedule.rng.random())
    cluster.network.slow(hosts[controller], hosts[uninformed], 0)
    for link in late:
        cluster.network.heal(*link)
    await within(schedule, 10, lambda: cluster.machines[node].up and cluster.all_in_isr())
    return elected and followed and short


@aim(
    "a replica moves to another log directory while it is written to",
    {**BUSY, "fault_s": 4.0, "pace_s": 0.1, "writers": 3},
    settings={"log_dirs": log_directories.DIRECTORIES},
)
async def moves_on_the_disk(schedule: Any) -> bool:
    """The copy takes several steps. Connections break, so that producers send again what is stored."""
    cluster, rng, caretaker = schedule.cluster, schedule.rng, schedule.caretaker
    with log_directories.short_steps():
        moving = log_directories.move_between_directories(caretaker, TOPIC)
        task = cluster.loop.spawn(caretaker.process, moving)
        while not task.done():
            leader = cluster.leader(TOPIC, 0)
            if leader > 0:
                cluster.network.reset_some(cluster.machines[leader].host, 0.3)
            await asyncio.sleep(0.05 * rng.random())
        moved: bool = task.result()
    return moved
