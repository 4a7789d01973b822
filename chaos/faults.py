"""The faults of a chaos run: each injects a failure into a cluster of processes, ends it, and returns a description.

A fault chooses its target by role (`scene`): the active controller, the leader of a busy partition, or any node. It
repairs in `finally`, so a run that ends early leaves nothing behind. The run counts faults with an effect: a fault
without a target or an effect returns None, or raises ActionRefused, and does not count.

Nodes are killed, stopped, frozen, isolated and cut off from ZooKeeper by the actions and rules of the cluster's front,
which its control plane has, too. The proxy has the faults of single links and directions.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.chaos import disk
from anabranch.chaos.scene import LOOKING_FAILED, Scene, hands_on
from anabranch.cluster.link_proxy import LinkFault
from anabranch.cluster.processes import FIRST_CONTROLLER_ID, NodeFailed
from anabranch.cluster.zookeeper import ZooKeeperUnavailable
from anabranch.cluster.zookeeper_sessions import active_controller, resign_active_controller
from anabranch.control.actions import ActionRefused
from anabranch.controller.failpoints import STEPS
from anabranch.faults.rule import Rule, rule_text

ALTER_PARTITION: Final = 56
ELECTION_TRIES: Final = 8
ARMED_S: Final = 12.0
ENSEMBLE: Final = 0
"""The entry of `Scene.busy` while a ZooKeeper server is killed, frozen or restarting: only one of three at a time."""
NOT_BY_ITSELF: Final = ("resign", "vacate", "make-room", "remove:", "first-features", "update-features", "allocate-")
EVERY_STEP: Final = tuple(step for step in STEPS if not step.startswith(NOT_BY_ITSELF))
"""The steps that occur in a run, which neither drains nor creates topics."""

Fault = Callable[[Scene], Awaitable[str | None]]
FAULTS: Final[dict[str, Fault]] = {}


@dataclass
class Fired:
    """One fault that happened; both times are of the event loop's clock, in seconds."""

    name: str
    what: str
    started_s: float
    ended_s: float


def fault(name: str) -> Callable[[Fault], Fault]:
    """Register a fault."""

    def enter(function: Fault) -> Fault:
        FAULTS[name] = function
        return function

    return enter


@fault("kill")
async def kill(scene: Scene) -> str | None:
    """SIGKILL a node, and start it again before or after the others have noticed."""
    victim = await scene.victim()
    if victim is None:
        return None
    return await _kill(scene, victim)


@fault("kill the controller")
async def kill_controller(scene: Scene) -> str | None:
    """SIGKILL the active controller."""
    victim = await scene.active()
    if victim not in scene.free(list(scene.cluster.nodes)):
        return None
    return await _kill(scene, victim)


async def _kill(scene: Scene, node_id: int) -> str:
    with hands_on(scene, node_id):
        await scene.cluster.kill(node_id)
        await asyncio.sleep(scene.pause())
        await scene.restart(node_id)
    return f"node {node_id}"


@fault("kill two brokers")
async def kill_two(scene: Scene) -> str | None:
    """SIGKILL two brokers, so that acks=all lacks replicas: writes must wait, and continue."""
    free = scene.free(scene.cluster.brokers)
    if len(free) < 2:
        return None
    victims = scene.rng.sample(free, 2)
    with hands_on(scene, *victims):
        for one in victims:
            await scene.cluster.kill(one)
            await asyncio.sleep(scene.rng.random())
        await asyncio.sleep(scene.pause())
        await asyncio.gather(*(scene.restart(one) for one in victims))
    return f"nodes {victims}"


@fault("stop in order")
async def stop_in_order(scene: Scene) -> str | None:
    """SIGTERM a broker, which moves its leaderships away first."""
    victim = await scene.victim()
    if victim is None:
        return None
    with hands_on(scene, victim):
        await scene.cluster.front.actions.stop(victim)
        await asyncio.sleep(scene.rng.random())
        await scene.restart(victim)
    return f"node {victim}"


@fault("freeze")
async def freeze(scene: Scene) -> str | None:
    """SIGSTOP and SIGCONT a node, for which no time seems to pass."""
    victim = await scene.victim()
    if victim is None:
        return None
    actions = scene.cluster.front.actions
    with hands_on(scene, victim):
        pause = scene.pause()
        try:
            await actions.freeze(victim)
            await asyncio.sleep(pause)
        finally:
            with contextlib.suppress(ActionRefused):  # it was not frozen
                await actions.thaw(victim)
    return f"node {victim} for {pause:.1f} s"


@fault("expire a session")
async def expire_session(scene: Scene) -> str | None:
    """End the ZooKeeper session of a live node."""
    victim = await scene.victim()
    if victim is None:
        return None
    with hands_on(scene, victim):
        try:
            await scene.cluster.front.actions.expire_session(victim)
        except LOOKING_FAILED:
            return None
        await asyncio.sleep(1)
    return f"node {victim}"


async def _disturb(scene: Scene, faults: Sequence[LinkFault], pause: float) -> str | None:
    proxy = scene.cluster.proxy
    try:
        for one in faults:
            proxy.begin(one)
        await asyncio.sleep(pause)
    finally:
        for one in faults:
            proxy.end(one)
    hits = sum(one.hits for one in faults)
    return f"{', '.join(map(str, faults))} for {pause:.1f} s, met {hits} times" if hits else None


def _two(scene: Scene) -> tuple[str, str] | None:
    nodes = {str(one) for one in scene.cluster.nodes}
    busy = {(link.source, link.target) for link in scene.cluster.proxy.links}
    between = sorted((source, target) for source, target in busy if {source, target} <= nodes)
    return scene.rng.choice(between) if between else None


@fault("cut a link")
async def cut(scene: Scene) -> str | None:
    """Cut two nodes off from each other, while all others reach both."""
    two = _two(scene)
    if two is None:
        return None
    one, other = two
    return await _disturb(scene, [LinkFault("cut", one, other), LinkFault("cut", other, one)], scene.pause())


@fault("drop one way")
async def drop(scene: Scene) -> str | None:
    """Delay everything that one node sends to another, requests or responses, for a long time."""
    two = _two(scene)
    if two is None:
        return None
    one, other = two if scene.rng.random() < 0.5 else two[::-1]
    lost = [LinkFault("drop", one, other, "there"), LinkFault("drop", other, one, "back")]
    return await _disturb(scene, lost, scene.pause())


@fault("isolate")
async def isolate(scene: Scene) -> str | None:
    """Cut a node off from all nodes and clients; only ZooKeeper still reaches it."""
    chosen = await scene.victim()
    if chosen is None:
        return None
    lost = (Rule(link=(f"{chosen}:*", f"*:{chosen}"), hold=True), Rule(brokers=(chosen,), hold=True))
    return await _ruled(scene, lost, scene.pause())


async def _ruled(scene: Scene, faults: Sequence[Rule], pause: float) -> str | None:
    """Apply rules for a while."""
    rules = scene.cluster.front.rules
    names = []
    try:
        for one in faults:
            names.append((await rules.add(one))["name"])
        await asyncio.sleep(pause)
    finally:
        rows = [await rules.remove(name) for name in names]
    hits = sum(row["hits"] for row in rows)
    return f"{', '.join(map(rule_text, faults))} for {pause:.1f} s, met {hits} times" if hits else None


@fault("delay a node")
async def delay(scene: Scene) -> str | None:
    """Delay everything to and from a node."""
    chosen = await scene.victim()
    if chosen is None:
        return None
    victim = str(chosen)
    by = 0.05 + scene.rng.random() * 0.45
    slow = [LinkFault("delay", victim, delay_s=by), LinkFault("delay", target=victim, delay_s=by)]
    return await _disturb(scene, slow, scene.pause())


@fault("hold AlterPartition")
async def hold_alter_partition(scene: Scene) -> str | None:
    """Hold a leader's AlterPartition requests: replicas may have failed or returned before they arrive."""
    held = LinkFault("hold", str(scene.rng.choice(scene.cluster.brokers)), api_key=ALTER_PARTITION)
    return await _disturb(scene, [held], scene.pause())


@fault("full disk")
async def full_disk(scene: Scene) -> str | None:
    """Limit a broker's files, so that each of its writes fails."""
    victim = await scene.victim(brokers_only=True)
    if victim is None:
        return None
    pid = scene.cluster.nodes[victim].pid
    with hands_on(scene, victim):
        disk.limit_files(pid, 1)
        pause = scene.pause()
        await asyncio.sleep(pause)
        node = scene.cluster.nodes[victim]
        if not node.running:
            await scene.restart(victim)
            return f"node {victim}, which gave up"
        disk.limit_files(pid, None)
    return f"node {victim} for {pause:.1f} s"


@fault("crash a consumer")
async def crash_consumer(scene: Scene) -> str | None:
    """Crash a member of the group without leaving; it rejoins as a new member."""
    reader = scene.rng.choice(scene.readers)
    return f"{reader.identity}" if await reader.crash() else None


@fault("replace a consumer")
async def replace_consumer(scene: Scene) -> str | None:
    """Make a member leave the group in order, and rejoin as a new member."""
    reader = scene.rng.choice(scene.readers)
    reader.replace()
    return f"{reader.identity}"


@fault("kill a stock member")
async def kill_member(scene: Scene) -> str | None:
    """SIGKILL a member of a group of other projects' consumers; it is restarted."""
    return scene.rng.choice(scene.groups).kill(scene.rng) if scene.groups else None


@fault("freeze a stock member")
async def freeze_member(scene: Scene) -> str | None:
    """SIGSTOP such a member, for shorter or longer than its session timeout, and SIGCONT."""
    if not scene.groups:
        return None
    return await scene.rng.choice(scene.groups).freeze(scene.rng, scene.pause())


@fault("crash a sharer")
async def crash_sharer(scene: Scene) -> str | None:
    """Crash a member of the share group with acquired records; it rejoins as a new member."""
    return None if scene.shared is None else scene.shared.crash(scene.rng)


@fault("reset connections")
async def reset(scene: Scene) -> str | None:
    """Reset all connections to a node, which may reconnect at once."""
    victim = await scene.victim()
    count = scene.cluster.proxy.reset(target=str(victim))
    return f"{count} to node {victim}" if count else None


@fault("lose ZooKeeper")
async def lose_zookeeper_connection(scene: Scene) -> str | None:
    """Cut a node off from ZooKeeper, for shorter or longer than its session timeout."""
    victim = await scene.victim()
    if victim is None:
        return None
    links, pause = scene.cluster.zookeeper_links, scene.rng.choice((2.0, 5.0, 9.0))
    assert links is not None
    if scene.rng.random() < 0.5:
        return await _disturb(scene, [LinkFault("drop", str(victim), name) for name in links.names], pause)
    actions = scene.cluster.front.actions
    await actions.suspend_session(victim)
    try:
        await asyncio.sleep(pause)
    finally:
        with contextlib.suppress(ActionRefused):  # another fault has killed the node
            await actions.resume_session(victim)
    return f"node {victim} for {pause:.1f} s"


@fault("kill a ZooKeeper server")
async def kill_zookeeper(scene: Scene) -> str | None:
    """SIGKILL one of three ZooKeeper servers, and start it again with its data."""
    ensemble = scene.cluster.ensemble
    number = scene.rng.choice(list(ensemble.servers))
    if not _quorum_whole(scene):
        return None
    with hands_on(scene, ENSEMBLE):
        await ensemble.kill(number)
        try:
            await asyncio.sleep(scene.pause())
        finally:
            with contextlib.suppress(ZooKeeperUnavailable):
                await ensemble.restart(number)
    return f"server {number}"


@fault("freeze a ZooKeeper server")
async def freeze_zookeeper(scene: Scene) -> str | None:
    """SIGSTOP and SIGCONT a ZooKeeper server; if it leads, the others elect another leader."""
    if not _quorum_whole(scene):
        return None
    number = scene.rng.choice(list(scene.cluster.ensemble.servers))
    pause = scene.pause()
    with hands_on(scene, ENSEMBLE):
        scene.cluster.freeze_server(number)
        try:
            await asyncio.sleep(pause)
        finally:
            scene.cluster.thaw_servers()
    return f"server {number} for {pause:.1f} s"


def _quorum_whole(scene: Scene) -> bool:
    """Whether all ZooKeeper servers are in service: a fault takes only one, so that a quorum remains."""
    servers = scene.cluster.ensemble.servers.values()
    return ENSEMBLE not in scene.busy and all(one.pid is not None for one in servers)


@fault("crash the controller at a step")
async def crash_at_step(scene: Scene) -> str | None:
    """Elect a controller that crashes at a chosen step, and resize the topic."""
    spares = scene.free([one for one in scene.cluster.nodes if one >= FIRST_CONTROLLER_ID])
    if not spares:
        return None
    armed, step = scene.rng.choice(spares), scene.rng.choice(EVERY_STEP)
    node = scene.cluster.nodes[armed]
    with hands_on(scene, armed):
        await scene.cluster.kill(armed)
        died = await arm_and_wait(scene, armed, step)
        await scene.cluster.kill(armed)
        await scene.restart(armed)
    return f"node {node.node_id} at {step}" if died else None


async def arm_and_wait(scene: Scene, armed: int, step: str) -> bool:
    """Start a node armed for the step, get it elected, and resize. Returns whether it crashed."""
    node, hosts = scene.cluster.nodes[armed], scene.cluster.zookeeper
    await node.start(extra={"crash.at": step})
    ended = asyncio.ensure_future(node.wait_ended())
    try:
        with contextlib.suppress(NodeFailed, *LOOKING_FAILED):
            await node.wait_ready()
            for _ in range(ELECTION_TRIES):
                if ended.done() or await active_controller(hosts) == armed:
                    break
                await resign_active_controller(hosts)
                await asyncio.sleep(0.3)
        if not ended.done() and await scene.active() != armed:
            return False
        resizing = asyncio.ensure_future(scene.resize())
        try:
            await asyncio.wait([ended], timeout=ARMED_S)
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                resizing.cancel()
                await asyncio.gather(resizing, return_exceptions=True)
        return ended.done()
    finally:
        ended.cancel()
