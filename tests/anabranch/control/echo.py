"""A controlled object and its routes, which show what a request carries."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

from anabranch.control.actions import ActionRefused, UnknownNode
from anabranch.control.events import EventRow, Events
from anabranch.control.route import ControlRequest, Route, WaitTimedOut
from anabranch.control.routes import EventsQuery, get_events

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
