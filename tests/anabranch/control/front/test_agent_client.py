"""Requests to an agent over HTTP: responses, refusals, silence, and streams that end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

import pytest

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.events import EventRow, Events
from anabranch.control.front.agent_client import AgentClient, AgentUnreachable, open_http
from anabranch.control.route import ControlRequest, Route, WaitTimedOut
from anabranch.control.routes import EventsQuery, get_events
from anabranch.control.server import ControlServer

T = TypeVar("T")


@dataclass
class Controlled:
    events: Events

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await work


class EchoQuery(TypedDict, total=False):
    n: str


class EchoBody(TypedDict, total=False):
    b: int


async def get_echo(on: Controlled, asked: ControlRequest) -> dict[str, Any]:
    return {"words": dict(asked.words), "query": dict(asked.query), "body": dict(asked.body)}


async def get_file(on: Controlled, asked: ControlRequest) -> bytes:
    return b"\x00\x01"


async def refuse(on: Controlled, asked: ControlRequest) -> EventRow:
    kind = asked.words["name"]
    raise {"value": ValueError, "node": UnknownNode, "action": ActionRefused, "wait": WaitTimedOut}[kind]("because")


async def never(on: Controlled, asked: ControlRequest) -> EventRow:
    return await asyncio.get_running_loop().create_future()


ROUTES = (
    Route("POST", "/v1/echo/{name}", "Echo.", get_echo, query=EchoQuery, body=EchoBody),
    Route("GET", "/v1/file", "A file.", get_file, gives_file=True),
    Route("GET", "/v1/refused/{name}", "A refusal.", refuse),
    Route("GET", "/v1/never", "No response.", never, waits=True),
    Route("GET", "/v1/events", "Events.", get_events, query=EventsQuery),
)


@asynccontextmanager
async def server(events: Events) -> AsyncIterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    one = ControlServer(Controlled(events), listener, "secret", ROUTES)
    await one.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await one.stop()


@pytest.fixture
async def agent() -> AsyncIterator[AgentClient]:
    async with server(Events()) as url, open_http() as http:
        yield AgentClient(http, url, "secret")


async def test_request_carries_path_query_and_body_and_returns_json_or_a_file(agent: AgentClient) -> None:
    found = await agent.ask("POST", "/v1/echo/a", query={"n": "1"})
    assert found == {"words": {"name": "a"}, "query": {"n": "1"}, "body": {}}
    assert await agent.ask("GET", "/v1/file") == b"\x00\x01"


@pytest.mark.parametrize(
    ("name", "error"),
    [("value", ValueError), ("node", UnknownNode), ("wait", WaitTimedOut), ("action", ActionRefused)],
)
async def test_refusal_is_raised_as_in_the_agent(agent: AgentClient, name: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^because$"):
        await agent.ask("GET", f"/v1/refused/{name}")


async def test_wrong_token_is_refused() -> None:
    async with server(Events()) as url, open_http() as http:
        with pytest.raises(ActionRefused, match="token"):
            await AgentClient(http, url, "other").ask("GET", "/v1/events")


async def test_agent_that_is_silent_or_down_is_unreachable(agent: AgentClient) -> None:
    with pytest.raises(AgentUnreachable, match="does not answer"):
        await agent.ask("GET", "/v1/never", timeout_s=0.05)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    async with open_http() as http:
        with pytest.raises(AgentUnreachable, match="does not answer"):
            await AgentClient(http, f"http://127.0.0.1:{free}", "").ask("GET", "/v1/events")


async def test_stream_yields_events_after_a_number_until_the_server_ends() -> None:
    events, found = Events(), list[tuple[str, int]]()
    events.publish("first")
    events.publish("second", text="a: b\nc")

    async def follow(agent: AgentClient) -> None:
        async for kind, row in agent.follow("/v1/events", {"after": "1"}):
            found.append((kind, row["number"]))

    async with open_http() as http:
        async with server(events) as url:
            following = asyncio.create_task(follow(AgentClient(http, url, "secret")))
            async with asyncio.timeout(10):
                while len(found) < 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                events.publish("third")
                while len(found) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        with pytest.raises(AgentUnreachable, match="has ended a stream"):
            await following
    assert found == [("second", 2), ("third", 3)]
