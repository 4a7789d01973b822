"""Observes whether a handler lets other requests run before its response exists. No clock is read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from anabranch.broker.authorization.peer import UNKNOWN_PEER
from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.broker.dispatch.services import Services

Response = TypeVar("Response")


def context(services: Services, version: int) -> RequestContext:
    """The context of a request in this version, for a call of its handler."""
    return RequestContext(services, version, "test", UNKNOWN_PEER)


async def yields_of(handler: Coroutine[Any, Any, Response]) -> tuple[Response, int]:
    """The response of a handler, and how often another callback of the loop ran before."""
    others, loop = 0, asyncio.get_running_loop()
    done = False

    def other() -> None:
        nonlocal others
        if not done:
            others += 1
            loop.call_soon(other)

    loop.call_soon(other)
    try:
        return await handler, others
    finally:
        done = True


async def while_it_yields(
    handler: Coroutine[Any, Any, Response], change: Callable[[], object], after: int = 5
) -> Response:
    """The response of a handler if something changes after it has yielded a few times."""
    working = asyncio.ensure_future(handler)
    for _ in range(after + 1):
        await asyncio.sleep(0)
    assert not working.done(), "it has not yielded so often"
    change()
    return await working
