"""Actions on real processes, with the events and the refusals of a cluster in one process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from anabranch.cluster.control_socket import OrderRefused
from anabranch.cluster.node_process import NodeProcess
from anabranch.cluster.zookeeper_links import ZooKeeperLinks
from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.front.process_actions import ProcessActions

ENDLESS = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print(1, flush=True); signal.pause()"
)
"""A process that ends in order at SIGTERM."""


@dataclass
class Sleeper(NodeProcess):
    """A node whose process only waits for signals."""

    async def start(self, **_: Any) -> None:
        options: dict[str, Any] = {"stdout": asyncio.subprocess.PIPE}
        self.process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", ENDLESS, **options)
        assert self.process.stdout is not None
        await self.process.stdout.readline()


@dataclass
class Told:
    """The actions under test, the processes, and the events."""

    actions: ProcessActions
    nodes: dict[int, Sleeper]
    links: ZooKeeperLinks
    events: list[tuple[str, int]]


@pytest.fixture
async def on(tmp_path: Any) -> AsyncIterator[Told]:
    nodes = {one: Sleeper(one, "broker", "127.0.0.1", 1, tmp_path, "127.0.0.1:1", properties={}) for one in (1, 2)}
    events: list[tuple[str, int]] = []

    async def start(node_id: int) -> None:
        await nodes[node_id].start()

    for one in nodes.values():
        await one.start()
    links = ZooKeeperLinks("127.0.0.1:1")
    actions = ProcessActions(nodes, start, "127.0.0.1:1", lambda kind, node, **_: events.append((kind, node)), links)
    yield Told(actions, nodes, links, events)
    for one in nodes.values():
        with contextlib.suppress(ProcessLookupError):
            await one.kill()


async def test_process_that_cannot_be_signalled_is_refused_before_anything_is_reported(on: Told) -> None:
    on.nodes[1].refusal = "node 1 runs on elsewhere"  # type: ignore[misc]
    for action in (on.actions.kill, on.actions.stop, on.actions.freeze, on.actions.thaw):
        with pytest.raises(ActionRefused, match="node 1 runs on elsewhere"):
            await action(1)
    await on.nodes[1].kill()
    with pytest.raises(ActionRefused, match="node 1 runs on elsewhere"):
        await on.actions.start(1)
    assert on.events == []


async def test_killed_node_ends_by_sigkill_and_starts_again(on: Told) -> None:
    await on.actions.kill(1)
    assert on.nodes[1].process is not None and on.nodes[1].process.returncode == -signal.SIGKILL
    with pytest.raises(ActionRefused, match="node 1 is not running"):
        await on.actions.kill(1)
    await on.actions.start(1)
    assert on.nodes[1].running
    assert on.events == [("node killed", 1), ("node starting", 1), ("node started", 1)]


async def test_stopped_node_ends_in_order(on: Told) -> None:
    await on.actions.stop(2)
    assert on.nodes[2].process is not None and on.nodes[2].process.returncode == 0
    assert on.events == [("node stopping", 2), ("node stopped", 2)]


async def test_suspended_session_is_cut_off_until_it_is_resumed(on: Told) -> None:
    await on.actions.suspend_session(1)
    assert on.links.is_cut(1) and not on.links.is_cut(2)
    with pytest.raises(ActionRefused, match="node 1 is already cut off from ZooKeeper"):
        await on.actions.suspend_session(1)
    with pytest.raises(ActionRefused, match="node 1 is cut off from ZooKeeper and cannot stop in order"):
        await on.actions.stop(1)
    await on.actions.resume_session(1)
    assert not on.links.is_cut(1)
    with pytest.raises(ActionRefused, match="node 1 is not cut off from ZooKeeper, and nothing delays it"):
        await on.actions.resume_session(1)
    assert on.events == [("session suspended", 1), ("session resumed", 1)]


async def test_link_to_zookeeper_is_slow_until_the_session_is_resumed_or_the_node_killed(on: Told) -> None:
    await on.actions.delay_session(1, 200)
    await on.actions.delay_session(1, 300)
    assert (on.actions.delay_ms(1), on.actions.delay_ms(2)) == (300, 0)
    await on.actions.resume_session(1)
    assert on.actions.delay_ms(1) == 0
    await on.actions.delay_session(1, 200)
    await on.actions.kill(1)
    assert on.actions.delay_ms(1) == 0
    with pytest.raises(ActionRefused, match="node 1 is not running"):
        await on.actions.delay_session(1, 200)
    assert [kind for kind, _ in on.events if kind != "node killed"] == [
        *["session delayed"] * 2,
        "session resumed",
        "session delayed",
    ]


async def test_killed_node_is_cut_off_no_longer_and_starts_again(on: Told) -> None:
    await on.actions.suspend_session(1)
    await on.actions.kill(1)
    assert not on.links.is_cut(1) and not on.actions.suspended_on_request
    on.links.cut(1)
    await on.actions.start(1)
    assert not on.links.is_cut(1)


async def test_what_a_rule_does_is_not_taken_for_a_request(on: Told) -> None:
    await on.actions.freeze(1, by_rule=True)
    await on.actions.suspend_session(2, by_rule=True)
    assert not on.actions.frozen_on_request and not on.actions.suspended_on_request
    await on.actions.thaw(1)
    await on.actions.resume_session(2)
    await on.actions.freeze(1)
    await on.actions.suspend_session(2)
    assert (on.actions.frozen_on_request, on.actions.suspended_on_request) == ({1}, {2})
    await on.actions.thaw(1)


async def test_front_without_links_can_neither_suspend_nor_delay(on: Told) -> None:
    actions = ProcessActions(on.nodes, on.nodes[1].start, "127.0.0.1:1", lambda *_, **__: None)
    assert not actions.can_suspend and on.actions.can_suspend
    with pytest.raises(ActionRefused, match="this front has not started the nodes"):
        await actions.suspend_session(1)
    with pytest.raises(ActionRefused, match="this front has not started the nodes"):
        await actions.delay_session(1, 200)
    assert actions.delay_ms(1) == 0


async def test_frozen_node_is_stopped_by_the_kernel_until_it_is_thawed(on: Told) -> None:
    await on.actions.freeze(1)
    assert on.nodes[1].frozen and on.nodes[1].running and not on.nodes[2].frozen
    with pytest.raises(ActionRefused, match="node 1 is already frozen"):
        await on.actions.freeze(1)
    await on.actions.thaw(1)
    assert not on.nodes[1].frozen
    with pytest.raises(ActionRefused, match="node 1 is not frozen"):
        await on.actions.thaw(1)
    assert on.events == [("node frozen", 1), ("node thawed", 1)]


async def test_frozen_node_can_be_killed_but_not_stopped(on: Told) -> None:
    await on.actions.freeze(1)
    with pytest.raises(ActionRefused, match="node 1 is frozen and cannot stop in order"):
        await on.actions.stop(1)
    await on.actions.kill(1)
    assert not on.nodes[1].running and not on.nodes[1].frozen


async def test_node_is_not_started_while_it_runs_or_another_is_frozen(on: Told) -> None:
    with pytest.raises(ActionRefused, match="node 1 is already running"):
        await on.actions.start(1)
    await on.actions.kill(1)
    await on.actions.freeze(2)
    with pytest.raises(ActionRefused, match="node 1 cannot become ready while node 2 is frozen; thaw it first"):
        await on.actions.start(1)


async def test_start_that_fails_is_refused_with_the_reason(on: Told) -> None:
    async def fail(_: int) -> None:
        raise OrderRefused("no space left")

    actions = ProcessActions(on.nodes, fail, "", lambda kind, node: None)
    await actions.kill(1)
    with pytest.raises(ActionRefused, match="no space left"):
        await actions.start(1)


@pytest.mark.parametrize("what", ["kill", "stop", "start", "freeze", "thaw", "expire_session"])
async def test_unknown_node_is_refused_with_the_known_ones(on: Told, what: str) -> None:
    with pytest.raises(UnknownNode, match="there is no node 7: there are 1, 2"):
        await getattr(on.actions, what)(7)
    assert on.events == []


async def test_session_of_a_node_that_is_down_is_not_expired(on: Told) -> None:
    await on.actions.kill(1)
    with pytest.raises(ActionRefused, match="node 1 is not running"):
        await on.actions.expire_session(1)
