"""Nodes are killed, stopped, started and cut from ZooKeeper; invalid actions are refused with a reason."""

from __future__ import annotations

import asyncio
import socket

import pytest

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.states import States
from anabranch.control.wait_conditions import condition, wait
from tests.anabranch.clock.test_process import on_clock
from tests.anabranch.control.conftest import controlled, with_topic


async def test_node_is_killed_or_stopped_and_started() -> None:
    async with controlled() as on, asyncio.timeout(60):
        await with_topic(on)
        for deed in (on.actions.kill, on.actions.stop):
            assert (await deed(2))["running"] is False
            assert not await wait(on.cluster, condition({"topic": "t", "isr": "1,3"}), 30)
            with pytest.raises(ActionRefused, match="node 2 is not running"):
                await deed(2)
            with pytest.raises(ActionRefused, match="node 2 is not running"):
                on.actions.expire_session(2)
            port = on.cluster.address(2)[1]
            row = await on.actions.start(2)
            assert (row["running"], row["port"]) == (True, port)
            assert not await wait(on.cluster, condition({"node": "2", "topic": "t", "isr": "3+"}), 30)
            with pytest.raises(ActionRefused, match="node 2 is already running"):
                await on.actions.start(2)
        kinds = [one.kind for one in on.events.after(0) if one.kind.startswith("node")]
        assert kinds == [
            *("node killed", "node starting", "node started"),
            *("node stopping", "node stopped", "node starting", "node started"),
        ]


@on_clock
async def test_start_beside_a_frozen_node_is_refused_at_once() -> None:
    async with controlled() as on, asyncio.timeout(60):
        await on.actions.kill(2)
        on.actions.freeze(3)
        with pytest.raises(ActionRefused, match=r"node 2 cannot become ready while node 3 is frozen; thaw it first"):
            await on.actions.start(2)
        on.actions.thaw(3)
        assert (await on.actions.start(2))["running"]


async def test_start_on_a_port_that_another_process_uses_is_refused_with_the_reason() -> None:
    async with controlled() as on, asyncio.timeout(60):
        await on.actions.kill(2)
        refused = pytest.raises(ActionRefused, match=r"node 2 does not start: .* address already in use")
        with socket.create_server(on.cluster.address(2)), refused:
            await on.actions.start(2)
        assert (await on.actions.start(2))["running"]


async def test_node_reregisters_after_session_expiry() -> None:
    async with controlled() as on, asyncio.timeout(60):
        await with_topic(on)
        before = on.cluster.nodes[2].services.fence.broker_epoch
        on.actions.expire_session(2)
        joined = [one async for one in _until(on, "broker joined")]
        assert joined[-1].detail["broker"] == 2 and joined[-1].detail["epoch"] > before
        assert not await wait(on.cluster, condition({"node": "2", "topic": "t", "isr": "3+"}), 30)


async def test_node_suspended_from_zookeeper_continues_after_resume() -> None:
    async with controlled() as on, asyncio.timeout(60):
        on.actions.suspend_session(3)
        with pytest.raises(ActionRefused, match="is already cut off from ZooKeeper"):
            on.actions.suspend_session(3)
        on.actions.resume_session(3)
        with pytest.raises(ActionRefused, match="is not cut off"):
            on.actions.resume_session(3)
        await with_topic(on)


async def test_unknown_nodes_are_refused() -> None:
    async with controlled(brokers=1) as on:
        for deed in (on.actions.kill, on.actions.stop, on.actions.start):
            with pytest.raises(UnknownNode, match="there is no node 7: there are 1"):
                await deed(7)
        for other in (on.actions.expire_session, on.actions.suspend_session, on.actions.resume_session):
            with pytest.raises(UnknownNode):
                other(7)


async def _until(on: object, kind: str):  # type: ignore[no-untyped-def]
    seen = 0
    while True:
        await on.events.wait_after(seen)  # type: ignore[attr-defined]
        for one in on.events.after(seen):  # type: ignore[attr-defined]
            seen = one.number
            yield one
            if one.kind == kind:
                return


async def test_clock_of_a_node_is_shifted_until_a_reset() -> None:
    async with controlled(2) as on, asyncio.timeout(60):
        with pytest.raises(UnknownNode, match="there is no node 9"):
            on.actions.shift_clock(9, 1)
        assert on.actions.shift_clock(2, -5000)["clock_offset_ms"] == -5000
        clocks = [on.cluster.nodes[one].services.clock_ms() for one in (1, 2)]
        assert 4900 < clocks[0] - clocks[1] < 5100
        await on.actions.kill(2)
        assert (await on.actions.start(2))["clock_offset_ms"] == -5000
        await States(on.cluster, on.actions, on.events, None, None, on.run).reset()
        assert on.cluster.nodes[2].clock.offset_ms == 0
