"""Nodes that only pretend: who is told of them, whose failures count, and who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from anabranch.broker.node.app import Node
from anabranch.cluster.running_nodes import RunningNodes
from anabranch.controller.zk.memory import MemoryZooKeeper


class PretendedNode:
    """Starts at once, stops when it may, and knows as many brokers as it is told."""

    def __init__(self, node_id: int) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.clock = SimpleNamespace(offset_ms=0)
        self.settings = SimpleNamespace(node_id=node_id)
        self.services = SimpleNamespace(session=None, metadata=self)
        self.image = SimpleNamespace(complete=True, brokers={node_id: None})
        self.may_stop = asyncio.Event()
        self.may_stop.set()
        self.stops: list[bool] = []

    async def start(self) -> None:
        pass

    async def stop(self, *, controlled: bool = True) -> None:
        await self.may_stop.wait()
        self.stops.append(controlled)

    async def wait_until(self, condition: Callable[[Any], bool], timeout_ms: int) -> bool:
        return condition(self.image)


class World:
    def __init__(self) -> None:
        self.created: list[PretendedNode] = []
        self.events: list[str] = []
        self.nodes = RunningNodes(self._create, lambda node_id, _: self.events.append(f"{node_id} has started"))

    def _create(self, node_id: int) -> Node:
        self.created.append(PretendedNode(node_id))
        return cast(Node, cast(Any, self.created[-1]))


async def test_listeners_see_nodes_that_run_and_those_that_start_later() -> None:
    world = World()
    await world.nodes.start(1)
    world.nodes.on_node(lambda node: world.events.append(f"{node.settings.node_id} is seen"))
    await world.nodes.start(2)
    assert world.events == ["1 has started", "1 is seen", "2 is seen", "2 has started"]


async def test_shifted_clock_stays_shifted_after_a_restart() -> None:
    world = World()
    world.nodes.shift_clock(1, 500)
    await world.nodes.start(1)
    await world.nodes.stop(1)
    await world.nodes.restart(1)
    assert [one.clock.offset_ms for one in world.created] == [500, 500]
    world.nodes.shift_clock(1, 0)
    assert world.created[1].clock.offset_ms == world.nodes.clock_offset_ms(1) == 0


@pytest.mark.parametrize("controlled", [True, False])
async def test_restarted_node_waits_until_its_predecessor_has_stopped(controlled: bool) -> None:
    world = World()
    await world.nodes.start(1)
    first = world.created[0]
    first.may_stop.clear()
    leaving = world.nodes.stop(1) if controlled else world.nodes.crash(1, MemoryZooKeeper())
    stopping = asyncio.create_task(leaving)
    await asyncio.sleep(0)
    assert world.nodes.by_id == {}
    starting = asyncio.create_task(world.nodes.restart(1))
    await asyncio.sleep(0)
    assert len(world.created) == 1
    first.may_stop.set()
    await asyncio.gather(stopping, starting)
    assert (first.stops, len(world.created)) == ([controlled], 2)


async def test_all_nodes_stop_at_once_and_without_moving_leaderships() -> None:
    world = World()
    for node_id in (1, 2):
        await world.nodes.start(node_id)
    await world.nodes.stop_all()
    assert [one.stops for one in world.created] == [[False], [False]]
    assert world.nodes.by_id == {}


async def test_node_that_does_not_learn_of_the_others_is_named() -> None:
    world = World()
    await world.nodes.start(7)
    await world.nodes.wait_for_metadata(1)
    with pytest.raises(TimeoutError, match=r"broker 7 sees only the brokers \[7\], not 2"):
        await world.nodes.wait_for_metadata(2)


@pytest.mark.parametrize("later", [False, True])
async def test_failure_of_a_running_node_ends_the_wait(later: bool) -> None:
    world = World()
    if not later:
        await world.nodes.start(1)
    waiting = asyncio.create_task(world.nodes.wait_failed())
    await asyncio.sleep(0)
    if later:
        await world.nodes.start(1)
    world.created[0].failed.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await waiting


async def test_error_of_a_killed_node_is_no_failure() -> None:
    world = World()
    await world.nodes.start(1)
    waiting = asyncio.create_task(world.nodes.wait_failed())
    await asyncio.sleep(0)
    await world.nodes.crash(1, MemoryZooKeeper())
    world.created[0].failed.set_exception(ZeroDivisionError())
    assert world.created[0].failed.exception() is not None
    await world.nodes.start(2)
    world.created[1].failed.set_exception(KeyError())
    with pytest.raises(KeyError):
        await waiting


async def test_failure_during_a_watched_start_is_seen_by_its_caller_alone() -> None:
    world = World()
    waiting = asyncio.create_task(world.nodes.wait_failed())
    await asyncio.sleep(0)

    async def start() -> None:
        await world.nodes.start(1)
        world.created[0].failed.set_exception(ZeroDivisionError())
        await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        await world.nodes.watch_start(start())
    await world.nodes.stop_all()
    assert not waiting.done()
    await world.nodes.start(2)
    world.created[1].failed.set_exception(KeyError())
    with pytest.raises(KeyError):
        await waiting


def test_nodes_that_do_not_run_are_neither_frozen_nor_thawed() -> None:
    nodes = World().nodes
    assert nodes.can_freeze and not nodes.is_frozen(1)
    nodes.freeze_if_possible(1)
    for act in (nodes.freeze, nodes.thaw):
        with pytest.raises(KeyError):
            act(1)
