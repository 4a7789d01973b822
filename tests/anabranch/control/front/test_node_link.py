"""A link follows the events of one node, over losses, new processes and other clocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import pytest

from anabranch.control.actions import ActionRefused
from anabranch.control.front.agent_client import AgentUnreachable
from anabranch.control.front.event_order import NodeEvent
from anabranch.control.front.node_link import NodeLink
from tests.anabranch.control.front.fronts import LocalNode


class ScriptedAgent:
    """An agent whose process and streams are said in advance."""

    def __init__(
        self, *streams: list[int], pids: list[int], ahead_s: float = 0.0, ways_s: Iterable[float] = ()
    ) -> None:
        self.streams = list(streams)
        self.pids = pids
        self.ahead_s = ahead_s
        self.ways_s = iter(ways_s)
        """How long a request, and then its answer, is on the way."""
        self.after: list[str] = []

    async def ask(self, method: str, path: str, **_: Any) -> Any:
        if not self.pids:
            await asyncio.get_running_loop().create_future()
        way_s = next(self.ways_s, 0.0)
        await asyncio.sleep(way_s)
        at_s = asyncio.get_running_loop().time() + self.ahead_s
        await asyncio.sleep(way_s)
        return {"pid": self.pids.pop(0), "at": at_s}

    async def follow(self, path: str, query: Mapping[str, str]) -> AsyncIterator[tuple[str, Any]]:
        self.after.append(query["after"])
        now_s = asyncio.get_running_loop().time() + self.ahead_s
        for number in self.streams.pop(0):
            yield "tick", {"number": number, "at": now_s, "kind": "tick", "count": number}
        raise AgentUnreachable("it has ended")


async def followed(
    agent: ScriptedAgent, refuse: Exception | None = None
) -> tuple[NodeLink, list[NodeEvent], list[str]]:
    """Follow until the script ends; returns the link, the events, and what happened to the link."""
    events, told = list[NodeEvent](), list[str]()

    async def on_up(link: NodeLink) -> None:
        told.append("up")
        if refuse is not None and told.count("up") == 1:
            raise refuse

    async def on_down(link: NodeLink) -> None:
        told.append("down")

    client: Any = agent
    link = NodeLink(LocalNode(1), client, on_up, on_down, events.append)
    running = asyncio.create_task(link.run())
    async with asyncio.timeout(30):
        while agent.pids or agent.streams:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return link, events, told


async def test_lost_stream_goes_on_after_the_last_event_and_a_new_process_from_the_beginning() -> None:
    agent = ScriptedAgent([1, 2], [3], [1], pids=[10, 10, 11])
    link, events, told = await followed(agent)
    assert [one.detail["count"] for one in events] == [1, 2, 3, 1]
    assert agent.after == ["0", "2", "0"]
    assert told[:4] == ["up", "down", "up", "down"] and link.pid == 11


@pytest.mark.parametrize(("ahead_s", "offset_s"), [(0.0, 0.0), (0.01, 0.0), (500.0, -500.0), (-500.0, 500.0)])
async def test_times_are_on_the_clock_of_the_front(ahead_s: float, offset_s: float) -> None:
    link, (event,), _ = await followed(ScriptedAgent([1], pids=[10], ahead_s=ahead_s))
    assert link.offset_s == pytest.approx(offset_s, abs=0.2)
    now_s = asyncio.get_running_loop().time()
    assert now_s - 5 < event.at_s <= now_s
    assert (event.source, event.kind, dict(event.detail)) == (1, "tick", {"count": 1})


@pytest.mark.parametrize(("ahead_s", "offset_s"), [(0.0, 0.0), (0.06, 0.0), (500.0, -500.0)])
async def test_agent_behind_a_slow_link_is_linked_with_the_time_of_its_quickest_answer(
    ahead_s: float, offset_s: float
) -> None:
    agent = ScriptedAgent([1], pids=[10] * 5, ahead_s=ahead_s, ways_s=[0.12, 0.08, 0.12, 0.1, 0.1])
    link, (event,), told = await followed(agent)
    assert told[0] == "up" and link.pid == 10 and event.detail["count"] == 1
    assert link.offset_s == pytest.approx(offset_s, abs=0.15)


async def test_refusal_is_kept_until_the_agent_accepts_the_front() -> None:
    agent = ScriptedAgent([1], pids=[10, 10])
    link, events, told = await followed(agent, ActionRefused("front other controls this node"))
    assert [one.detail["count"] for one in events] == [1] and link.refusal == ""
    assert told[:3] == ["up", "down", "up"]
    link, _, _ = await followed(ScriptedAgent(pids=[10]), ActionRefused("front other controls this node"))
    assert link.refusal == "front other controls this node" and not link.reachable


async def test_frozen_node_is_linked_and_not_reachable() -> None:
    node = LocalNode(1)
    client: Any = ScriptedAgent(pids=[])
    link = NodeLink(node, client, lambda _: asyncio.sleep(0), lambda _: asyncio.sleep(0), lambda _: None)
    assert not link.reachable
    link._is_up.set()
    await link.wait_up()
    assert link.reachable
    node.frozen = True
    assert not link.reachable
