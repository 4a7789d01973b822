"""The fault menu: one function for each fault, which returns whether it had an effect.

A fault draws its target by role (the controller, the leader of a partition, anybody) and its length around the session
timeout, ends by itself, and leaves everything as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from anabranch.controller.failpoints import STEPS
from anabranch.controller.zk import paths

if TYPE_CHECKING:
    from tests.sim.cluster import SimCluster
    from tests.sim.schedule import Schedule

Fault = Callable[["Schedule"], Awaitable[bool]]
FAULTS: Final[dict[str, Fault]] = {}
UP_WITHIN_S: Final = 5.0
"""How long a node that lost power may take to start, with other faults beside; then the fault counts as over."""


def entering(table: dict[str, Any]) -> Callable[[str], Callable[[Any], Any]]:
    """Return a decorator with a name, which puts functions into a table."""

    def named(name: str) -> Callable[[Any], Any]:
        def enter(function: Any) -> Any:
            table[name] = function
            return function

        return enter

    return named


fault: Final = entering(FAULTS)


def target_of(schedule: Schedule, *, brokers_only: bool = False) -> int:
    """A node that is up: the controller, a leader, or any; 0 if there is none."""
    cluster, rng = schedule.cluster, schedule.rng
    up = [one.node_id for one in (cluster.brokers if brokers_only else cluster.machines.values()) if one.up]
    if not up:
        return 0
    role = rng.random()
    if role < 0.35 and cluster.active_controller() in up:
        return cluster.active_controller()
    if role < 0.7:
        leaders = sorted({state.leader for place, state in cluster.states() if state.leader in up})
        if leaders:
            return int(rng.choice(leaders))
    return int(rng.choice(up))


def _pause(schedule: Schedule) -> float:
    return float(schedule.rng.choice((0.1, 0.5, 1.5, 2.2, 3.5)) * (0.8 + 0.4 * schedule.rng.random()))


@fault("kill")
async def kill(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, target_of(schedule)
    if not target:
        return False
    cluster.tell(f"kill node {target}")
    cluster.crash(target)
    await asyncio.sleep(_pause(schedule))
    cluster.boot(target)
    return True


@fault("kill all brokers")
async def kill_all(schedule: Schedule) -> bool:
    cluster = schedule.cluster
    cluster.tell("kill all brokers")
    for machine in cluster.brokers:
        cluster.crash(machine.node_id)
        await asyncio.sleep(schedule.rng.random() * 0.3)
    await asyncio.sleep(_pause(schedule))
    for machine in schedule.rng.sample(cluster.brokers, len(cluster.brokers)):
        cluster.boot(machine.node_id)
        await asyncio.sleep(schedule.rng.random())
    return True


@fault("stop in order")
async def stop_in_order(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, target_of(schedule)
    if not target:
        return False
    cluster.tell(f"stop node {target}")
    await cluster.stop(target, within_s=schedule.rng.choice((0.02, 0.2, 4.0)))
    await asyncio.sleep(_pause(schedule) / 2)
    cluster.boot(target)
    return True


@fault("die in append")
async def die_in_append(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, target_of(schedule, brokers_only=True)
    if not target:
        return False
    disk = cluster.machines[target].disk
    before = disk.fired["died in the middle of an append"]
    disk.die_in_append = lambda: cluster.crash(target)
    cluster.tell(f"node {target} will die in its next append")
    await asyncio.sleep(_pause(schedule))
    disk.die_in_append = None
    if not cluster.machines[target].up:
        cluster.boot(target)
    return disk.fired["died in the middle of an append"] > before


@fault("freeze")
async def freeze(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, target_of(schedule)
    if not target:
        return False
    cluster.tell(f"freeze node {target}")
    process = cluster.machines[target].process
    cluster.freeze(target)
    await asyncio.sleep(_pause(schedule))
    if cluster.machines[target].process is process:
        cluster.tell(f"thaw node {target}")
        cluster.thaw(target)
    return True


@fault("expire session")
async def expire_session(schedule: Schedule) -> bool:
    target = target_of(schedule)
    if not target:
        return False
    schedule.cluster.tell(f"expire the session of node {target}")
    return schedule.cluster.expire_session(target) > 0


@fault("unseat the controller")
async def unseat_controller(schedule: Schedule) -> bool:
    """An administrator deletes /controller to force an election: the old controller's session lives on."""
    zookeeper = schedule.cluster.zookeeper
    if paths.CONTROLLER not in zookeeper.tree.nodes:
        return False
    schedule.cluster.tell("delete /controller")
    zookeeper.watch_delay_ms = schedule.rng.choice((0, 300, 1500))
    zookeeper.write(lambda: zookeeper.tree.delete(paths.CONTROLLER, -1))
    await asyncio.sleep(1)
    zookeeper.watch_delay_ms = 0
    return True


@fault("cut off from zookeeper")
async def cut_from_zookeeper(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, target_of(schedule)
    if not target:
        return False
    host = cluster.machines[target].host
    cluster.tell(f"cut {host} off from ZooKeeper")
    cluster.zookeeper.cut(host)
    await asyncio.sleep(_pause(schedule))
    cluster.tell(f"{host} reaches ZooKeeper again")
    cluster.zookeeper.mend(host)
    return True


@fault("delay watches")
async def delay_watches(schedule: Schedule) -> bool:
    zookeeper = schedule.cluster.zookeeper
    before = zookeeper.fired["watch delayed"]
    zookeeper.watch_delay_ms = schedule.rng.choice((50, 300, 1500))
    await asyncio.sleep(_pause(schedule))
    zookeeper.watch_delay_ms = 0
    return zookeeper.fired["watch delayed"] > before


@fault("partition")
async def partition(schedule: Schedule) -> bool:
    cluster, rng, target = schedule.cluster, schedule.rng, target_of(schedule)
    if not target:
        return False
    host = cluster.machines[target].host
    others = [one.host for one in cluster.machines.values() if one.host != host]
    if rng.random() < 0.4:
        others = [rng.choice(others)]
    if rng.random() < 0.5:
        others += (one.name for one in schedule.clients)
    one_way, inwards = rng.random() < 0.4, rng.random() < 0.5
    some, rest = ([host], others) if not inwards else (others, [host])
    arrow = ("from" if inwards else "to") if one_way else "and"
    cluster.tell(f"partition {host} {arrow} {', '.join(others)}")
    with_zookeeper = not one_way and rng.random() < 0.3
    if with_zookeeper:
        cluster.zookeeper.cut(host)
    cluster.partition(some, rest, one_way=one_way)
    await asyncio.sleep(_pause(schedule))
    for source in some:
        for other in rest:
            cluster.network.heal(source, other)
            cluster.network.heal(other, source)
    if with_zookeeper:
        cluster.zookeeper.mend(host)
    cluster.tell(f"heal {host}")
    return True


@fault("slow link")
async def slow_link(schedule: Schedule) -> bool:
    cluster, rng, target = schedule.cluster, schedule.rng, target_of(schedule)
    if not target:
        return False
    host = cluster.machines[target].host
    other = rng.choice([one.host for one in cluster.machines.values() if one.host != host])
    before = cluster.network.fired["slow delivery"]
    for source, end in ((host, other), (other, host)):
        cluster.network.slow(source, end, rng.choice((20, 200, 800)))
    await asyncio.sleep(_pause(schedule))
    for source, end in ((host, other), (other, host)):
        cluster.network.slow(source, end, 0)
    return cluster.network.fired["slow delivery"] > before


@fault("reset connections")
async def reset_connections(schedule: Schedule) -> bool:
    target = target_of(schedule)
    if not target:
        return False
    host = schedule.cluster.machines[target].host
    schedule.cluster.tell(f"reset connections of {host}")
    return schedule.cluster.network.reset_some(host, schedule.rng.choice((0.2, 1.0))) > 0


@fault("disk full")
async def disk_full(schedule: Schedule) -> bool:
    cluster, target = schedule.cluster, target_of(schedule, brokers_only=True)
    if not target:
        return False
    disk = cluster.machines[target].disk
    before = disk.fired["no space left"]
    cluster.tell(f"the disk of node {target} is full")
    disk.full = True
    await asyncio.sleep(_pause(schedule))
    disk.full = False
    return disk.fired["no space left"] > before


@fault("power failure")
async def power_failure(schedule: Schedule) -> bool:
    """One machine loses its page cache. Without flushing, only a single failure is survivable. The active controller's
    machine is spared: its successor cannot know that a re-registered broker lost its records, as in Kafka.
    """
    cluster, alone = schedule.cluster, schedule.stands_alone("power failure")
    target = target_of(schedule, brokers_only=True)
    if not target or (target == cluster.active_controller() and not schedule.shape.flushes):
        return False
    schedule.fragile |= alone
    lies = alone and schedule.rng.random() < 0.6 and target != cluster.active_controller()
    if lies:
        cluster.machines[target].disk.lying = True
        await asyncio.sleep(schedule.rng.random() * 2)
        if target == cluster.active_controller():  # by now
            cluster.machines[target].disk.stop_lying()
            schedule.fragile = False
            return False
    cluster.tell(f"node {target} loses power")
    cluster.crash(target, power=True)
    cluster.machines[target].disk.lying = False
    await asyncio.sleep(_pause(schedule))
    cluster.boot(target)
    if alone:
        await _is_whole_again(cluster, target)
        schedule.fragile = False
        return True
    deadline = cluster.now() + UP_WITHIN_S
    while cluster.now() < deadline and not cluster.machines[target].up:
        await asyncio.sleep(0.1)
    return True


async def _is_whole_again(cluster: SimCluster, target: int) -> None:
    """Up means registered, which the session of the earlier life must have ended for: from then on its ISRs tell."""
    deadline = cluster.now() + 20
    while cluster.now() < deadline and not (cluster.machines[target].up and cluster.all_in_isr()):
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)
    while cluster.now() < deadline and not cluster.all_in_isr():
        await asyncio.sleep(0.1)


@fault("power failure everywhere")
async def power_failure_everywhere(schedule: Schedule) -> bool:
    """Only where every append is flushed."""
    cluster = schedule.cluster
    cluster.tell("all machines lose power")
    for machine in cluster.machines.values():
        cluster.crash(machine.node_id, power=True)
    await asyncio.sleep(_pause(schedule))
    for machine in schedule.rng.sample(list(cluster.machines.values()), len(cluster.machines)):
        cluster.boot(machine.node_id)
        await asyncio.sleep(schedule.rng.random() * 0.5)
    return True


@fault("controller fails at a step")
async def controller_fails(schedule: Schedule) -> bool:
    """Arm a failpoint in every node; the next controller to take the step dies there, or freezes, or is expired."""
    cluster, rng = schedule.cluster, schedule.rng
    point = rng.choice(list(STEPS))
    if rng.random() < 0.3:
        point = f"{point}:{rng.choice((1, 2))}"
    how = rng.choice(("killed", "killed", "frozen", "expired"))
    for machine in cluster.machines.values():
        machine.failpoint, machine.at_failpoint = point, how
    cluster.tell(f"controllers will be {how} after {point}")
    await asyncio.sleep(_pause(schedule) * 2)
    unhurt = all(machine.failpoint == point for machine in cluster.machines.values())
    for machine in cluster.machines.values():
        machine.failpoint = ""
    return not unhurt


@fault("clock jumps")
async def clock_jumps(schedule: Schedule) -> bool:
    """The wall clock of a machine or client is wrong by up to an hour, and recovers. Timers and running nodes do not
    notice; a node that starts meanwhile uses it.
    """
    cluster, rng = schedule.cluster, schedule.rng
    clock = rng.choice([*cluster.machines.values(), *schedule.clients])
    skew_ms = round(rng.choice((-1, 1)) * rng.choice((200, 5_000, 3_600_000)) * rng.random())
    cluster.tell(f"the clock of {clock.host} jumps by {skew_ms} ms")
    clock.skew_ms += skew_ms
    cluster.fired["clock jumped"] += 1
    await asyncio.sleep(_pause(schedule))
    clock.skew_ms -= skew_ms
    return skew_ms != 0


@fault("client dies")
async def client_dies(schedule: Schedule) -> bool:
    application = schedule.rng.choice(schedule.clients)
    if not application.alive:
        return False
    schedule.cluster.tell(f"kill {application.identity}")
    application.kill()
    await asyncio.sleep(_pause(schedule) / 2)
    application.start()
    return True


@fault("client freezes")
async def client_freezes(schedule: Schedule) -> bool:
    application = schedule.rng.choice(schedule.clients)
    process = application.process
    if process is None or process.frozen:
        return False
    schedule.cluster.tell(f"freeze {application.identity}")
    schedule.cluster.fired["client frozen"] += 1
    schedule.cluster.loop.freeze(process)
    await asyncio.sleep(_pause(schedule))
    if application.process is process:
        schedule.cluster.loop.thaw(process)
    return True


@fault("application blocks")
async def application_blocks(schedule: Schedule) -> bool:
    """It has fetched records, and does not poll for longer than its session or the rebalance timeout. Either its whole
    process is frozen, or heartbeats continue.
    """
    cluster, rng = schedule.cluster, schedule.rng
    reader = rng.choice(schedule.readers)
    process = reader.process
    if process is None or not process.alive or process.frozen or reader.block_s:
        return False
    frozen, reader.block_s = rng.random() < 0.6, rng.choice((2.5, 3.5, 5.0))
    deadline = cluster.now() + 2
    while not reader.blocked and cluster.now() < deadline:
        await asyncio.sleep(0.01)
    if not reader.blocked or reader.process is not process:
        reader.block_s = 0.0
        return False
    how, length_s = "with its whole process" if frozen else "and its heart beats", reader.block_s
    cluster.tell(f"the application of {reader.identity} blocks for {length_s} s, {how}")
    cluster.fired[f"application blocked {how}"] += 1
    if frozen:
        cluster.loop.freeze(process)
    await asyncio.sleep(length_s)
    if reader.process is process:
        cluster.loop.thaw(process)
    return True


@fault("copier replaced")
async def copier_replaced(schedule: Schedule) -> bool:
    """A copier does not answer, another is started in its place, and then the first one wakes up."""
    copier = schedule.rng.choice(schedule.copiers)
    if copier.process is None or not copier.alive or copier.process.frozen:
        return False
    schedule.cluster.tell(f"{copier.identity} freezes and is replaced")
    schedule.cluster.loop.freeze(copier.process)
    await asyncio.sleep(_pause(schedule) / 3)
    old = copier.replace()
    await asyncio.sleep(_pause(schedule))
    assert old is not None
    schedule.cluster.loop.thaw(old)
    return True
