"""Aims at resizes: lost end offsets, replicas frozen during a removal, late leaders; see `aims`."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.controller.zk import paths
from anabranch.protocol.apis.fetch import FetchRequest
from anabranch.protocol.registry import api_of
from tests.sim.aims import aim, calm
from tests.sim.aims_of_disks import within
from tests.sim.clients import TOPIC
from tests.sim.loop import Process


@aim(
    "flushes take long, and ends are learned late",
    {
        "copiers": 0,
        "readers": 2,
        "keys": 20,
        "flush_s": 1.0,
        "commit_intervals_ms": (20,),
        "fault_s": 6.0,
        "strategies": (("range",),),
    },
    resizing=True,
)
async def long_flushes(schedule: Any) -> bool:
    """Readers lag, and learn the end of one key epoch while they flush another's. Leaders wait for slow followers
    before they report ends.
    """
    cluster, rng = schedule.cluster, schedule.rng
    leaders = sorted({one.leader for place, one in cluster.states() if place[0] == TOPIC and one.leader > 0})
    if not leaders:
        return False
    leader = cluster.machines[rng.choice(leaders)].host
    others = [one.host for one in cluster.brokers if one.host != leader]
    links = [link for one in others for link in ((one, leader), (leader, one))]
    if await schedule.affected_place(within_s=3) is None:
        return False
    for link in links:
        cluster.network.slow(*link, rng.choice((200, 400)))
    processes = [one.process for one in schedule.readers if one.alive]
    for process in processes:
        cluster.loop.freeze(process)
    deadline = cluster.now() + 1.2
    while cluster.now() < deadline and dict(cluster.topics())[TOPIC].plan is not None:
        await asyncio.sleep(0.01)
    await asyncio.sleep(rng.random() * 0.1)
    for process in processes:
        cluster.loop.thaw(process)
    await asyncio.sleep(1.5)
    for link in links:
        cluster.network.slow(*link, 0)
    return True


@aim(
    "an application takes its time over the end of a key epoch",
    {"copiers": 0, "readers": 3, "keys": 8, "fault_s": 6.0, "slow": 0.3, "strategies": (("range",),)},
    resizing=True,
)
async def slow_applications(schedule: Any) -> bool:
    """It has been given all there is, and does not come back for more: what it got is not committed."""
    place = await schedule.affected_place()
    await asyncio.sleep(0.5)
    return place is not None


@aim(
    "who told an end dies with records before it that nobody else has",
    {"copiers": 0, "readers": 2, "keys": 8, "fault_s": 6.0, "pace_s": 0.2, "spares": 1, "writers": 4},
    resizing=True,
)
async def end_dies(schedule: Any) -> bool:
    """Its followers have fetched in its epoch, so it may report the end; they lack the tail when it dies."""
    cluster, rng = schedule.cluster, schedule.rng
    controller = cluster.active_controller()
    leaders = [one.leader for place, one in cluster.states() if place[0] == TOPIC and one.leader > 0]
    leaders = [one for one in leaders if one != controller]
    if not leaders:
        return False
    node = rng.choice(leaders)  # who leads more partitions comes up more often
    host, followers = cluster.machines[node].host, [one for one in cluster.brokers if one.node_id != node]
    for one in followers:
        cluster.network.slow(host, one.host, rng.choice((200, 400)))
    told = cluster.history.resizes.boundaries
    known, alone, deadline = len(told), False, cluster.now() + 4
    while cluster.now() < deadline and not alone:
        await asyncio.sleep(0.005)
        for row in told[known:]:
            others = [cluster.replica(one.node_id, *row.place) for one in followers]
            behind = all(one is not None and one.log.log_end_offset < row.end_offset for one in others)
            alone = alone or (row.node == node and behind)
        known = len(told)
    if alone:
        cluster.tell(f"kill node {node}, which has told an end that only it knows")
        cluster.crash(node)
        cluster.expire_session(node)
    for one in followers:
        cluster.network.slow(host, one.host, 0)
    if alone:
        await asyncio.sleep(1 + rng.random())
        cluster.boot(node)
    return alone


@aim(
    "a replica sleeps over a removal and the next life of its index",
    {"copiers": 0, "readers": 2, "keys": 8, "fault_s": 8.0, "pace_s": 0.2, "spares": 1},
    resizing=True,
)
async def replica_sleeps(schedule: Any) -> bool:
    """It holds records of a partition that is drained and removed meanwhile, and wakes up before the topic grows."""
    cluster, rng = schedule.cluster, schedule.rng
    deadline = cluster.now() + 4
    marked: list[int] = []
    while cluster.now() < deadline and not marked:
        await asyncio.sleep(0.01)
        body = dict(cluster.topics()).get(TOPIC)
        if body is not None:
            marked = [one for one in body.assignment if one >= body.undeleted_partition_count]
    controller = cluster.active_controller()
    holders = sorted({one for index in marked for one in body.assignment[index]} - {controller}) if body else []
    if not holders:
        return False
    node, index = rng.choice(holders), max(marked)
    cluster.tell(f"kill node {node}, which sleeps over the removal of {TOPIC}-{index}")
    cluster.crash(node)
    cluster.expire_session(node)
    deadline = cluster.now() + 5
    while cluster.now() < deadline and index in dict(cluster.topics())[TOPIC].assignment:
        await asyncio.sleep(0.01)
    removed = index not in dict(cluster.topics())[TOPIC].assignment
    cluster.boot(node)
    return removed


@aim(
    "a leader hears late that it is one",
    {"copiers": 0, "readers": 1, "keys": 20, "fault_s": 6.0, "pace_s": 0.2, "spares": 1, "write_pause_s": 0.03},
    resizing=True,
)
async def late_leader(schedule: Any) -> bool:
    """A child loses its first leader; the next one gets a producer's first batches while it becomes one."""
    cluster, rng = schedule.cluster, schedule.rng
    deadline = cluster.now() + 3
    children: list[int] = []
    while cluster.now() < deadline and not children:
        await asyncio.sleep(0.005)
        body = dict(cluster.topics()).get(TOPIC)
        if body is not None and body.plan is not None and body.plan.grows:
            known = dict(cluster.states())
            children = [one for one in range(body.plan.before, body.plan.after) if (TOPIC, one) in known]
    controller = cluster.active_controller()
    child = rng.choice(children) if children else -1
    node = cluster.leader(TOPIC, child)
    if not controller or node <= 0 or node == controller:
        return False
    successor = next((one for one in body.assignment[child] if one not in (node, controller)), 0)
    if not successor or not cluster.machines[successor].up:
        return False
    late = cluster.machines[successor].host
    cluster.network.slow(cluster.machines[controller].host, late, rng.choice((200, 500, 800)))
    cluster.network.slow(schedule.writers[0].host, late, rng.choice((50, 150, 300)))
    while cluster.now() < deadline and dict(cluster.topics())[TOPIC].plan is not None:
        await asyncio.sleep(0.002)
    cluster.crash(node)
    cluster.expire_session(node)
    await asyncio.sleep(2)
    cluster.network.slow(cluster.machines[controller].host, late, 0)
    cluster.network.slow(schedule.writers[0].host, late, 0)
    cluster.boot(node)
    return True


@aim(
    "keys pass through a partition that nobody wrote to, and readers are behind",
    {
        "copiers": 0,
        "readers": 3,
        "keys": 8,
        "fault_s": 3.0,
        "pace_s": 0.2,
        "slow": 0.5,
        "write_pause_s": 0.03,
        "strategies": (("range",),),
    },
    resizing=True,
)
async def empty_between(schedule: Any) -> bool:
    """Two resizes without a record between them: what holds a key back stands two key epochs before it, not one."""
    cluster, resizer = schedule.cluster, schedule.operators[0]
    resizer.steps.clear()
    while resizer.task is not None and not resizer.task.done():
        await asyncio.sleep(0.05)

    async def resize(wanted: int) -> None:
        await cluster.loop.spawn(Process("operator of the story"), resizer._resize(wanted))

    body = dict(cluster.topics())[TOPIC]
    count = body.undeleted_partition_count
    if count > 4 or count < body.base:
        count = body.base if body.base <= 4 else 1  # below the base, linear hashing is that over one
        await resize(count)
    readers = [one.process for one in schedule.readers if one.alive]
    writers = [one.process for one in schedule.writers if one.alive]
    for process in readers:
        cluster.loop.freeze(process)
    await asyncio.sleep(0.6)
    for process in writers:
        cluster.loop.freeze(process)
    await asyncio.sleep(0.3)  # what they have sent arrives
    await resize(2 * count)
    await resize(4 * count)
    for process in writers:
        cluster.loop.thaw(process)
    await asyncio.sleep(0.6)
    for process in readers:
        cluster.loop.thaw(process)
    await asyncio.sleep(1.5)
    return True


@aim(
    "a leader with a tail sleeps over a removal and leads the next life of its index",
    {
        "copiers": 0,
        "readers": 1,
        "keys": 20,
        "fault_s": 6.0,
        "pace_s": 0.2,
        "spares": 3,
        "writers": 2,
        "write_pause_s": 0.06,
        "strategies": (("range",),),
    },
    resizing=True,
)
async def tail_sleeps(schedule: Any) -> bool:
    """No other replica had its records: the first incarnation ended where it began, and the next begins there."""
    cluster, resizer = schedule.cluster, schedule.operators[0]
    resizer.steps.clear()
    while resizer.task is not None and not resizer.task.done():
        await asyncio.sleep(0.05)

    async def seen(condition: Any, within_s: float) -> bool:
        deadline = cluster.now() + within_s
        while not condition() and cluster.now() < deadline:
            await asyncio.sleep(0.002)
        return bool(condition())

    def resize(wanted: int) -> Any:
        return cluster.loop.spawn(Process("operator of the story"), resizer._resize(wanted))

    def end(node: int) -> int:
        replica = cluster.replica(node, *child)
        return -1 if replica is None else replica.log.log_end_offset

    body = dict(cluster.topics())[TOPIC]
    count, child = body.undeleted_partition_count, (TOPIC, body.undeleted_partition_count)
    if not await seen(lambda: calm(cluster), 3) or child[1] in dict(cluster.topics())[TOPIC].assignment:
        return False
    if cluster.active_controller() in (0, *(one.node_id for one in cluster.brokers)):  # it has to hear from its leaders
        cluster.zookeeper.write(lambda: cluster.zookeeper.tree.delete(paths.CONTROLLER, -1))
        return False
    tombstone = dict(cluster.topics())[TOPIC].retired.get(count)
    begin = 0 if tombstone is None else tombstone.end_offset
    growing = resize(count + 1)
    await seen(lambda: cluster.leader(*child) > 0, 2)
    node = cluster.leader(*child)
    followers = [one for one in cluster.brokers if one.node_id != node]
    ways = [(one.host, cluster.machines[node].host) for one in followers] if node > 0 else []
    for way in ways:  # it goes on following others, who could not acknowledge anything without it
        cluster.network.snare(*way, api_of(FetchRequest).key)
    await growing
    await seen(lambda: end(node) > begin, 1)
    await resize(count)
    alone = end(node) > begin and all(end(one.node_id) == begin for one in followers)
    cluster.tell(f"kill node {node}, which has what nobody else has of {TOPIC}-{child[1]}")
    cluster.crash(node)
    cluster.expire_session(node)
    for way in ways:
        cluster.network.unsnare(*way)
    removed = await seen(lambda: child[1] not in dict(cluster.topics())[TOPIC].assignment, 5)
    cluster.boot(node)
    await seen(lambda: calm(cluster), 10)
    await resize(count + 1)
    return alone and removed and cluster.leader(*child) == node


@aim(
    "a partition is removed while a broker of it has no session",
    {"copiers": 0, "readers": 2, "keys": 8, "fault_s": 8.0, "pace_s": 0.2, "spares": 1},
    resizing=True,
)
async def removed_unheard(schedule: Any) -> bool:
    """No controller can tell the broker to delete its replica. It has heard of the merge, or not even of that."""
    cluster, rng = schedule.cluster, schedule.rng
    node = rng.choice([one.node_id for one in cluster.brokers if one.node_id != cluster.active_controller()])
    host, resizer = cluster.machines[node].host, schedule.operators[0]
    resizer.steps.clear()
    await within(schedule, 20, lambda: resizer.task is None or resizer.task.done())

    def resize(wanted: int) -> Any:
        return cluster.loop.spawn(Process("operator of the story"), resizer._resize(wanted))

    body = dict(cluster.topics())[TOPIC]
    merged = body.undeleted_partition_count
    if not await within(schedule, 3, lambda: calm(cluster)) or merged in body.assignment:
        return False
    await resize(merged + 1)
    if not await within(schedule, 5, lambda: calm(cluster) and cluster.replica(node, TOPIC, merged) is not None):
        return False
    hears = rng.random() < 0.5
    if hears:
        await resize(merged)
    cluster.tell(f"node {node} has no session while {TOPIC}-{merged} is removed")
    cluster.zookeeper.cut(host)
    cluster.expire_session(node)
    if not hears:
        await resize(merged)
    removed = await within(schedule, 6, lambda: merged not in dict(cluster.topics())[TOPIC].assignment)
    kept = cluster.replica(node, TOPIC, merged) is not None
    await asyncio.sleep(rng.random())
    cluster.zookeeper.mend(host)
    await within(schedule, 5, lambda: calm(cluster))
    return removed and kept
