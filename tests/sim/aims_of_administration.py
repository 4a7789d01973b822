"""Aims at controllers and topics; see `aims`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from anabranch import Admin, NewTopic
from anabranch.controller.zk import paths
from tests.sim import access, administration, namesakes, restoring
from tests.sim.aims import aim, calm
from tests.sim.chores import SIDE, Caretaker, make_or_unmake
from tests.sim.clients import CLIENT_FAILURES
from tests.sim.loop import outside
from tests.sim.zookeeper import Change

CALM: Final = {"copiers": 0, "readers": 1, "counts": [2], "keys": 3, "fault_s": 6.0, "pace_s": 0.3, "brokers": 3}
"""Hardly anything but the story."""


async def _act(schedule: Any, chore: Any) -> bool:
    caretaker: Caretaker = schedule.caretaker
    assert caretaker.process is not None
    done: bool = await schedule.cluster.loop.spawn(caretaker.process, chore(caretaker))
    return done


async def _seen(schedule: Any, condition: Any, within_s: float) -> bool:
    deadline = schedule.cluster.now() + within_s
    while not condition() and schedule.cluster.now() < deadline:
        await asyncio.sleep(0.01)
    return bool(condition())


def _made_on(brokers: list[int]) -> Any:
    async def make(caretaker: Caretaker) -> bool:
        topic = NewTopic(name=SIDE, assignments={0: brokers})

        async def once(admin: Admin) -> None:
            await admin.create_topics([topic])

        caretaker.side_exists = True
        return await caretaker.ask(f"make the side topic on {brokers}", once, limit_s=20)

    return make


@aim("a session ends while a topic is made", {**CALM, "spares": 0})
async def session_ends(schedule: Any) -> bool:
    """Right after its configuration has been written, which is the first of several writes."""
    cluster, ended = schedule.cluster, []

    def seen(change: Change) -> None:
        if change.path == paths.topic_config(SIDE) and change.data is not None and not ended:
            session = cluster.zookeeper._sessions.get(change.session_id)
            if session is not None:
                ended.append(session)
                delay_s = schedule.rng.choice((0.0, 0.001, 0.004))
                cluster.loop.call_later(delay_s, cluster.zookeeper.expire, session, context=outside())

    cluster.zookeeper.on_change.append(seen)
    await _act(schedule, make_or_unmake)
    cluster.zookeeper.on_change.remove(seen)
    return bool(ended)


@aim("a controller sleeps while another does its work", {**CALM, "spares": 1})
async def controller_sleeps(schedule: Any) -> bool:
    """Its session lives. After it resumes, it first sees a topic whose partitions another controller created."""
    cluster, node = schedule.cluster, schedule.cluster.active_controller()
    if not node or not cluster.machines[node].up:
        return False
    process, name = cluster.machines[node].process, f"tool-{len(list(cluster.topics()))}"
    cluster.history.unread.add(name)
    cluster.freeze(node)
    brokers = ", ".join(str(one.node_id) for one in cluster.brokers if one.node_id != node)
    cluster.write_znode(paths.topic(name), f'{{"version": 1, "partitions": {{"0": [{brokers}]}}}}'.encode())
    cluster.zookeeper.write(lambda: cluster.zookeeper.tree.delete(paths.CONTROLLER, -1))
    at_work = await _seen(schedule, lambda: (name, 0) in dict(cluster.states()), 1.6)
    if cluster.machines[node].process is process:
        cluster.thaw(node)
    await asyncio.sleep(0.5)
    return at_work


@aim("a controller is asked for producer ids while another takes over", {**CALM, "spares": 1})
async def asked_while_replaced(schedule: Any) -> bool:
    """Both are frozen: the controller before the request, and the broker before it learns of the next controller."""
    cluster, node = schedule.cluster, schedule.cluster.active_controller()
    if not node or not calm(cluster):
        return False
    broker = schedule.rng.choice([one for one in cluster.brokers if one.node_id != node])
    services, process = broker.node.services, cluster.machines[node].process

    async def ask() -> None:
        with contextlib.suppress(*CLIENT_FAILURES):
            await services.producer_ids._claim()

    connecting = cluster.loop.spawn(broker.process, ask())
    if not await _seen(schedule, connecting.done, 1) or services.controller_link._connection is None:
        return False
    cluster.freeze(node)
    pending = cluster.loop.spawn(broker.process, ask())
    await asyncio.sleep(0.1)
    cluster.freeze(broker.node_id)
    cluster.zookeeper.write(lambda: cluster.zookeeper.tree.delete(paths.CONTROLLER, -1))
    replaced = await _seen(schedule, lambda: cluster.active_controller() not in (0, node), 1)
    unheard = cluster.machines[node].process is process and cluster.machines[node].node.controller.active
    for one, asleep in ((node, process), (broker.node_id, broker.process)):
        if cluster.machines[one].process is asleep:
            cluster.thaw(one)
        await asyncio.sleep(0.1)
    await _seen(schedule, pending.done, 3)
    return bool(replaced and unheard and pending.done())


@aim("a replica sleeps over the end of its topic and the birth of a namesake", {**CALM, "spares": 1})
async def namesake(schedule: Any) -> bool:
    """The replica was moved meanwhile, so the topic's deletion did not wait for it."""
    cluster, rng = schedule.cluster, schedule.rng
    if schedule.caretaker.side_exists or not calm(cluster):
        return False
    awake = [one.node_id for one in cluster.brokers]
    sleeper = rng.choice([one for one in awake if one != cluster.active_controller()])
    everybody = rng.sample(awake, len(awake))
    awake.remove(sleeper)
    if not await _act(schedule, _made_on(everybody)):
        return False
    await _seen(schedule, lambda: cluster.replica(sleeper, SIDE, 0) is not None, 2)
    cluster.crash(sleeper)
    cluster.expire_session(sleeper)

    async def move(caretaker: Caretaker) -> bool:
        return await caretaker.ask(
            f"move {SIDE}-0 to {awake}", lambda admin: administration.reassign(admin, SIDE, {0: awake}), limit_s=10
        )

    await _act(schedule, move)
    moved = await _seen(schedule, lambda: set(cluster.assignments().get((SIDE, 0), ())) == set(awake), 5)
    gone = moved and await _act(schedule, make_or_unmake)
    cluster.boot(sleeper)
    made = gone and await _act(schedule, _made_on(everybody))
    if made and await _seen(schedule, lambda: calm(cluster), 5):
        await _act(schedule, make_or_unmake)
    return bool(made)


@aim("a broker whose disk is full hears of a topic that is deleted", {**CALM, "spares": 1})
async def reminded(schedule: Any) -> bool:
    """The controller repeats the replica's request when there may be space, but not after its deletion."""
    cluster, rng = schedule.cluster, schedule.rng
    if schedule.caretaker.side_exists or not calm(cluster):
        return False
    brokers = [one.node_id for one in cluster.brokers]
    full, away = rng.sample([one for one in brokers if one != cluster.active_controller()], 2)
    disk = cluster.machines[full].disk
    disk.full = True
    made = await _act(schedule, _made_on([one for one in brokers if one != full] + [full]))
    await _seen(schedule, lambda: cluster.replica(away, SIDE, 0) is not None, 2)
    cluster.crash(away)
    cluster.expire_session(away)
    unmaking = cluster.loop.spawn(None, _act(schedule, make_or_unmake), "unmake")
    await asyncio.sleep(0.5 * rng.random())
    disk.full = False
    await asyncio.sleep(1 + rng.random())
    cluster.boot(away)
    return bool(await unmaking and made)


@aim("a controller is asked for a topic that it has not heard of", {**CALM, "spares": 0})
async def unheard_of(schedule: Any) -> bool:
    """It was elected when the topic had just been made: in ZooKeeper it stands, and the broker's metadata lacks it."""
    cluster, rng = schedule.cluster, schedule.rng
    before = cluster.active_controller()
    others = [one for one in cluster.brokers if one.node_id != before]
    if not before or not all(one.up for one in cluster.brokers) or schedule.caretaker.side_exists:
        return False
    successor, witness = rng.sample(others, 2)
    old_host = cluster.machines[before].host
    cluster.network.block(old_host, successor.host)
    made = await _act(schedule, _made_on([before, witness.node_id]))
    cluster.network.slow(successor.host, successor.host, 600)
    cluster.freeze(witness.node_id)
    cluster.crash(before)
    cluster.expire_session(before)
    elected = await _seen(schedule, lambda: cluster.active_controller() == successor.node_id, 1.5)
    cluster.thaw(witness.node_id)
    unmaking = cluster.loop.spawn(None, _act(schedule, make_or_unmake), "unmake")
    await asyncio.sleep(1.0)
    cluster.network.slow(successor.host, successor.host, 0)
    cluster.network.heal(old_host, successor.host)
    cluster.boot(before)
    await unmaking
    return bool(made and elected)


@aim("a controller is replaced while a broker connects to it", {**CALM, "spares": 1, "counts": [3], "fault_s": 8.0})
async def replaced_while_connecting(schedule: Any) -> bool:
    """A leader proposes an ISR over a slow connection to the controller, and is replaced while it lives."""
    cluster, rng, controller = schedule.cluster, schedule.rng, schedule.cluster.active_controller()
    if not calm(cluster) or not controller:
        return False
    leader, follower = rng.sample([one.node_id for one in cluster.brokers if one.node_id != controller], 2)
    link = cluster.machines[leader].node.services.controller_link
    way = (cluster.machines[leader].host, cluster.machines[controller].host)
    cluster.network.slow(*way, 600)
    cluster.crash(follower)
    cluster.expire_session(follower)
    await _seen(schedule, lambda: not cluster.all_in_isr(), 1)
    cluster.boot(follower)
    connecting = await _seen(schedule, lambda: link._opening.locked(), 5)
    if connecting:
        cluster.zookeeper.write(lambda: cluster.zookeeper.tree.delete(paths.CONTROLLER, -1))
    replaced = await _seen(schedule, lambda: cluster.active_controller() not in (0, controller), 1)
    late = replaced and link._opening.locked()
    cluster.network.slow(*way, 0)
    await _seen(schedule, lambda: calm(cluster), 10)
    return bool(late)


@aim(
    "a client loses a right that it uses",
    {"copiers": 0, "readers": 2, "counts": [2], "keys": 8, "fault_s": 5.0, "pace_s": 0.2, "write_pause_s": 0.03},
    settings=access.SETTINGS,
)
async def right_lost(schedule: Any) -> bool:
    """Others go on, and it goes on when it has the right again. It has come about when a read or write was at stake."""
    cluster, judged = schedule.cluster, len(schedule.cluster.history.denials)
    await access.RightsOperator(cluster).create()
    taken = await access.right_is_taken_away(schedule)
    return taken and len(cluster.history.denials) > judged


@aim(restoring.FAULT, {**CALM, "fault_s": 4.0, "keys": 8})
async def restored(schedule: Any) -> bool:
    """It has come about when the session outlived every wait that the node's own timeout would explain."""
    patience_s = 1.5 * schedule.cluster.machines[1].settings.zookeeper_session_timeout_ms / 1000 + 1
    began_s = schedule.cluster.now()
    return await restoring.node_is_restored(schedule) and schedule.cluster.now() - began_s > patience_s


@aim("a topic is replaced while responses of ZooKeeper are lost", {**CALM, "spares": 1, "fault_s": 8.0})
async def replaced_unheard(schedule: Any) -> bool:
    """Of the request to delete it, or of the controller's removal: the next topic exists when the write is repeated."""
    cluster, rng = schedule.cluster, schedule.rng
    if not calm(cluster):
        return False
    losing = namesakes.lose_responses(schedule, rng.choice(namesakes.DELETIONS))
    lost = cluster.loop.spawn(None, losing, "lose responses")
    replaced = await _act(schedule, namesakes.replace)
    return await lost and replaced


@aim("a replica is moved away while its broker has no session", {**CALM, "spares": 1, "fault_s": 8.0})
async def moved_unheard(schedule: Any) -> bool:
    """No controller can tell the broker to stop its replica, which may lead on in its old epoch."""
    cluster, rng = schedule.cluster, schedule.rng
    if schedule.caretaker.side_exists or not calm(cluster):
        return False
    brokers = [one.node_id for one in cluster.brokers]
    away = rng.choice([one for one in brokers if one != cluster.active_controller()])
    others = [one for one in brokers if one != away]
    if not await _act(schedule, _made_on([away, *others])):
        return False
    await _seen(schedule, lambda: calm(cluster) and cluster.replica(away, SIDE, 0) is not None, 3)
    cluster.zookeeper.cut(cluster.machines[away].host)
    cluster.expire_session(away)

    async def move(caretaker: Caretaker) -> bool:
        return await caretaker.ask(
            f"move {SIDE}-0 to {others}", lambda admin: administration.reassign(admin, SIDE, {0: others}), limit_s=10
        )

    await _act(schedule, move)
    moved = await _seen(schedule, lambda: set(cluster.assignments().get((SIDE, 0), ())) == set(others), 5)
    kept = cluster.replica(away, SIDE, 0) is not None
    await asyncio.sleep(rng.random())
    cluster.zookeeper.mend(cluster.machines[away].host)
    await asyncio.sleep(1)
    return moved and kept
