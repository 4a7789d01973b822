"""A tenure with real I/O: after any last write or request of a controller, the next one converges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random

import pytest

from anabranch.controller import machine, partitions, topic_admin
from anabranch.controller.candidacy import NoLongerController
from anabranch.controller.controller import Controller
from anabranch.controller.effects import Effect
from anabranch.controller.events import Event, PartitionsWritten, TopicSnapshot
from anabranch.controller.runner import Runner
from anabranch.controller.state import ClusterState
from anabranch.controller.zk import paths, znodes
from anabranch.controller.zk.session import Create, SessionExpired
from tests.controller.cluster import TestCluster


def kill_after(cluster: TestCluster, controller: Controller, acts: int) -> Callable[[str], None]:
    """End the controller's process right after its n-th write or request."""
    left = acts

    def acted(step: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            cluster.zookeeper.expire(controller.session_under_test)  # type: ignore[attr-defined]
            raise SessionExpired

    return acted


@pytest.mark.parametrize(("initial", "count"), [(4, 6), (4, 3)])
async def test_resize_killed_after_any_act_is_finished_by_next_controller(initial: int, count: int) -> None:
    """R3 with ZooKeeper and TCP: final znodes do not depend on the number of controllers."""
    cluster = await TestCluster.start(3)
    await cluster.create_topic("reference", initial)
    await cluster.resize("reference", count)
    reference = await outcome(cluster, "reference")
    await cluster.controllers.pop().stop()
    acts = 0
    while True:
        acts += 1
        name = f"t{acts}"
        first = await cluster.add_controller(2 * acts, crash_at="any act")
        await cluster.until(lambda: cluster.active is not None)
        await cluster.create_topic(name, initial)
        second = await cluster.add_controller(2 * acts + 1)
        runner = first._runner
        assert runner is not None
        hook = kill_after(cluster, first, acts)
        runner.writes._acted = hook
        result = await cluster.resize(name, count)
        killed = not first.active
        if killed:
            await cluster.until(lambda second=second: second.active)
            await until_published(cluster, name, count)
        else:
            assert result.error_code == 0
        assert await outcome(cluster, name) == reference, f"after {acts} acts"
        for controller in (first, second):
            cluster.controllers.remove(controller)
            await controller.stop()
        if not killed:
            break
    await cluster.stop()
    assert acts > 10


async def until_published(cluster: TestCluster, name: str, count: int) -> None:
    async with asyncio.timeout(60):
        while True:
            changed = asyncio.Event()
            await cluster.client.get(paths.topic(name), lambda _, changed=changed: changed.set())
            body = await cluster.topic(name)
            if body.plan is None and body.undeleted_partition_count == count:
                return
            await changed.wait()


async def outcome(cluster: TestCluster, name: str) -> object:
    body = await cluster.topic(name)
    states = {
        index: (state.leader_epoch, state.generation, state.gen_start, state.sealed)
        for index, state in (await cluster.states(name)).items()
    }
    return sorted(body.assignment), body.history, body.generation, body.undeleted_partition_count, body.plan, states


async def test_zombie_controller_changes_nothing() -> None:
    """Its session is cut, another one is elected, and its late writes fail on /controller_epoch."""
    cluster = await TestCluster.start(3, preferred_election_delay_ms=0)
    await cluster.create_topic("t", 4)
    zombie = cluster.controller
    session = zombie.session_under_test  # type: ignore[attr-defined]
    await cluster.add_controller(101)
    pending = asyncio.ensure_future(cluster.resize("t", 6))
    await asyncio.sleep(0)
    session.lose_connection()
    cluster.zookeeper.end_session(session)  # the server gives up on it; it does not know yet
    await cluster.until(lambda: cluster.controllers[1].active)
    before = await outcome(cluster, "t")
    session.reconnect()
    result = await pending
    assert result.error_code == 41  # NOT_CONTROLLER
    assert await outcome(cluster, "t") == before
    assert not zombie.active and cluster.controllers[1].epoch == 2
    await cluster.stop()


async def test_controller_that_reads_a_higher_epoch_resigns() -> None:
    """/controller was deleted right after its election, which it does not know yet."""
    cluster = await TestCluster.start(3)
    await cluster.create_topic("t", 4)
    active = cluster.controller._runner
    assert active is not None
    earlier = replace(active._term, epoch=active._term.epoch - 1)
    in_touch = asyncio.Event()
    in_touch.set()
    settings = active._settings
    late = Runner(
        cluster.sessions[0],
        settings,
        earlier,
        active._candidacy,
        Random(1),
        None,
        in_turn=lambda: False,
        in_touch=in_touch,
    )
    with pytest.raises(NoLongerController, match="epoch 1 is active"):
        await late.run()
    await cluster.stop()


async def test_lost_reply_to_a_write_is_not_a_lost_write() -> None:
    cluster = await TestCluster.start(3)
    await cluster.create_topic("t", 4)
    session = cluster.controller.session_under_test  # type: ignore[attr-defined]
    for carry_out in (True, False):
        count = 6 if carry_out else 8
        pending = asyncio.ensure_future(cluster.resize("t", count))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        session.lose_connection(carry_out=carry_out)
        session.reconnect()
        assert (await pending).error_code == 0
    assert (await cluster.topic("t")).history == ((0, 4), (1, 6), (2, 8))
    assert cluster.controller.epoch == 1, "a short cut is no reason to resign"
    await cluster.stop()


async def create_and_mark(cluster: TestCluster, name: str) -> None:
    """Create a topic and request its deletion at once; another topic's deletion is due to be read."""
    body = znodes.encode_topic(topic_admin.new_topic(name.encode() * 16, {0: (1,)}))
    other, marked = paths.delete_topic("other"), paths.delete_topic(name)
    await cluster.client.multi([Create(other, b""), Create(paths.topic(name), body), Create(marked, b"")])


async def deletion_is_carried_out(cluster: TestCluster, name: str) -> bool:
    gone = asyncio.Event()
    if await cluster.client.exists(paths.delete_topic(name), lambda _: gone.set()) is not None:
        async with asyncio.timeout(60):
            await gone.wait()
    return await cluster.client.exists(paths.topic(name)) is None


async def test_deletion_of_a_topic_that_was_not_read_yet_is_carried_out() -> None:
    cluster = await TestCluster.start(1)
    await create_and_mark(cluster, "t")
    assert await deletion_is_carried_out(cluster, "t")
    await cluster.stop()


async def test_deletion_of_a_topic_created_during_a_takeover_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await TestCluster.start(1)
    read = Runner._snapshots

    async def snapshots(self: Runner, names: Iterable[str]) -> tuple[TopicSnapshot, ...]:
        found = await read(self, names)
        if not self.loaded:
            await create_and_mark(cluster, "t")
        return found

    monkeypatch.setattr(Runner, "_snapshots", snapshots)
    await cluster.controllers.pop().stop()
    await cluster.add_controller(101)
    await cluster.until(lambda: cluster.active is not None)
    assert await deletion_is_carried_out(cluster, "t")
    await cluster.stop()


async def test_other_callbacks_run_between_the_outcomes_of_a_large_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that leads thousands of partitions stops: their new leaders are sent in steps."""
    cluster = await TestCluster.start(2)
    await cluster.create_topic("t", 6, replication=2)
    monkeypatch.setattr(partitions, "PARTITIONS_AT_ONCE", 2)
    monkeypatch.setattr(partitions, "WRITES_PER_OUTCOME", 2)
    turns, loop, step, handled = 0, asyncio.get_running_loop(), machine.step, list[int]()

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(handled) < 3:
            loop.call_soon(turn)

    def watched(state: ClusterState, event: Event) -> list[Effect]:
        handled.extend([turns] if isinstance(event, PartitionsWritten) else [])
        return step(state, event)

    monkeypatch.setattr(machine, "step", watched)
    loop.call_soon(turn)
    await cluster.brokers[1].die()
    await cluster.until_states("t", lambda states: all(one.isr == (2,) for one in states.values()))
    await cluster.until(lambda: len(handled) == 3)
    assert handled[0] < handled[1] < handled[2]
    await cluster.stop()
