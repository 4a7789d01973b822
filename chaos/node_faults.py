"""The faults of nodes, of links between them, and of ZooKeeper's servers.

A target is the active controller, the leader of a busy partition, or any node. Faults of nodes are actions and rules of
the cluster's front, so its control plane shows them. Only ZooKeeper's servers, and slow links to them, are faults that
the control plane does not have.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from anabranch.chaos.fault_table import FaultTable
from anabranch.chaos.scene import LOOKING_FAILED, Scene, hands_on
from anabranch.cluster.link_proxy import Kind
from anabranch.cluster.processes import FIRST_CONTROLLER_ID
from anabranch.cluster.zookeeper import ZooKeeperUnavailable
from anabranch.cluster.zookeeper_sessions import active_controller, resign_active_controller
from anabranch.control.actions import ActionRefused
from anabranch.controller.failpoints import STEPS
from anabranch.faults.rule import Rule, rule_text

ELECTION_TRIES: Final = 8
ARMED_S: Final = 12.0
LOST_S: Final = (2.0, 5.0, 9.0)
"""How long a node lacks ZooKeeper: shorter or longer than its session timeout."""
ENSEMBLE: Final = 0
"""The entry of `Scene.busy` while a ZooKeeper server is killed, frozen or restarting: only one of three at a time."""
NOT_BY_ITSELF: Final = ("resign", "vacate", "make-room", "remove:", "first-features", "update-features", "allocate-")
EVERY_STEP: Final = tuple(step for step in STEPS if not step.startswith(NOT_BY_ITSELF))
"""The steps that occur in a run, which neither drains nor creates topics."""
FAULTS: Final = FaultTable()


@FAULTS.add_for_node("kill")
async def kill(scene: Scene, victim: int) -> str | None:
    """SIGKILL a node, and start it again before or after the others have noticed."""
    return await _kill(scene, victim)


@FAULTS.add("kill the controller")
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


@FAULTS.add("kill two brokers")
async def kill_two(scene: Scene) -> str | None:
    """SIGKILL two brokers, so that acks=all lacks replicas: writes must wait, and continue."""
    free = scene.free(scene.cluster.broker_ids)
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


@FAULTS.add_for_node("stop in order")
async def stop_in_order(scene: Scene, victim: int) -> str | None:
    """SIGTERM a broker, which moves its leaderships away first."""
    with hands_on(scene, victim):
        await scene.cluster.front.actions.stop(victim)
        await asyncio.sleep(scene.rng.random())
        await scene.restart(victim)
    return f"node {victim}"


@FAULTS.add_for_node("freeze")
async def freeze(scene: Scene, victim: int) -> str | None:
    """SIGSTOP and SIGCONT a node, for which no time seems to pass."""
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


@FAULTS.add_for_node("expire a session")
async def expire_session(scene: Scene, victim: int) -> str | None:
    """End the ZooKeeper session of a live node."""
    with hands_on(scene, victim):
        try:
            await scene.cluster.front.actions.expire_session(victim)
        except LOOKING_FAILED:
            return None
        await asyncio.sleep(1)
    return f"node {victim}"


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


def _two(scene: Scene) -> tuple[int, int] | None:
    running = [one for one, node in scene.cluster.nodes.items() if node.running]
    if len(running) < 2:
        return None
    one, other = scene.rng.sample(running, 2)
    return one, other


def _all_of(node_id: int, **effect: Any) -> tuple[Rule, Rule]:
    """Return rules with an effect on all requests to a node, and on those that it sends to other nodes."""
    return Rule(link=(f"{node_id}:*", f"*:{node_id}"), **effect), Rule(brokers=(node_id,), **effect)


@FAULTS.add("cut a link")
async def cut(scene: Scene) -> str | None:
    """Cut two nodes off from each other, while all others reach both."""
    two = _two(scene)
    if two is None:
        return None
    one, other = two
    return await _ruled(scene, [Rule(link=(f"{one}:{other}", f"{other}:{one}"), disconnect="before")], scene.pause())


@FAULTS.add("drop one way")
async def drop(scene: Scene) -> str | None:
    """Delay everything that one node sends to another, requests and responses, for a long time."""
    two = _two(scene)
    if two is None:
        return None
    one, other = two
    return await _ruled(scene, [Rule(link=(f"{one}:{other}",), hold=True)], scene.pause())


@FAULTS.add_for_node("isolate")
async def isolate(scene: Scene, victim: int) -> str | None:
    """Cut a node off from all nodes and clients; only ZooKeeper still reaches it."""
    return await _ruled(scene, _all_of(victim, hold=True), scene.pause())


@FAULTS.add_for_node("delay a node")
async def delay(scene: Scene, victim: int) -> str | None:
    """Delay all requests to a node, and all between it and other nodes."""
    by_ms = float(scene.rng.randrange(50, 500))
    return await _ruled(scene, _all_of(victim, delay_ms=(by_ms,)), scene.pause())


@FAULTS.add("hold AlterPartition")
async def hold_alter_partition(scene: Scene) -> str | None:
    """Hold a leader's AlterPartition requests: replicas may have failed or returned before they arrive."""
    leader = scene.rng.choice(scene.cluster.broker_ids)
    return await _ruled(scene, [Rule(api=("AlterPartition",), link=(f"{leader}:*",), hold=True)], scene.pause())


@FAULTS.add("full disk")
async def full_disk(scene: Scene) -> str | None:
    """Make each write of a broker to its disk fail for lack of space."""
    victim = await scene.victim(brokers_only=True)
    if victim is None:
        return None
    rules = scene.cluster.front.rules
    with hands_on(scene, victim):
        pause = scene.pause()
        name = (await rules.add(Rule(disk="full", brokers=(victim,))))["name"]
        try:
            await asyncio.sleep(pause)
        finally:
            row = await rules.remove(name)
        if not scene.cluster.nodes[victim].running:
            await scene.restart(victim)
            return f"node {victim}, which gave up"
    return f"node {victim} for {pause:.1f} s, met {row['hits']} times" if row["hits"] else None


@FAULTS.add_for_node("break connections")
async def break_connections(scene: Scene, victim: int) -> str | None:
    """Close each connection to a node at its next request, before or after the work; it may be opened again."""
    when = scene.rng.choice(("before", "after"))
    return await _ruled(scene, _all_of(victim, disconnect=when), min(scene.pause(), 1.0))


@FAULTS.add_for_node("lose ZooKeeper")
async def lose_zookeeper_connection(scene: Scene, victim: int) -> str | None:
    """Cut a node off from ZooKeeper, for shorter or longer than its session timeout."""
    actions, pause = scene.cluster.front.actions, scene.rng.choice(LOST_S)
    await actions.suspend_session(victim)
    try:
        await asyncio.sleep(pause)
    finally:
        with contextlib.suppress(ActionRefused):  # another fault has killed the node
            await actions.resume_session(victim)
    return f"node {victim} for {pause:.1f} s"


@FAULTS.add_for_node("slow ZooKeeper")
async def slow_zookeeper(scene: Scene, victim: int) -> str | None:
    """Delay the traffic between a node and ZooKeeper, or let none of it arrive, while the connection stays open."""
    links, pause = scene.cluster.zookeeper_links, scene.rng.choice(LOST_S)
    assert links is not None, "nodes with agents have such links"
    kind: Kind = scene.rng.choice(("drop", "delay"))
    faults = links.begin(kind, victim, round(0.05 + scene.rng.random() * 0.45, 3))
    try:
        await asyncio.sleep(pause)
    finally:
        links.end(faults)
    hits = sum(one.hits for one in faults)
    return f"{', '.join(map(str, faults))} for {pause:.1f} s, met {hits} times" if hits else None


@FAULTS.add("kill a ZooKeeper server")
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


@FAULTS.add("freeze a ZooKeeper server")
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


@FAULTS.add("crash the controller at a step")
async def crash_at_step(scene: Scene) -> str | None:
    """Elect a controller that is killed at a victim step, and resize the topic."""
    spares = scene.free([one for one in scene.cluster.nodes if one >= FIRST_CONTROLLER_ID])
    if not spares:
        return None
    armed, step = scene.rng.choice(spares), scene.rng.choice(EVERY_STEP)
    rules = scene.cluster.front.rules
    with hands_on(scene, armed):
        name = (await rules.add(Rule(step=(step,), brokers=(armed,), node="kill", times=1)))["name"]
        try:
            died = await elect_and_resize(scene, armed)
        finally:
            await rules.remove(name)
        await scene.cluster.kill(armed)  # the rule's kill may still be under way
        await scene.restart(armed)
    return f"node {armed} at {step}" if died else None


async def elect_and_resize(scene: Scene, armed: int) -> bool:
    """Get a node elected, and resize. Returns whether it has died."""
    hosts = scene.cluster.zookeeper
    ended = asyncio.ensure_future(scene.cluster.nodes[armed].wait_ended())
    try:
        with contextlib.suppress(*LOOKING_FAILED):
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
