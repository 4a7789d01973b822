"""Observes whether a handler lets other requests run before its response exists.

The clock of `YieldBudget` stands still meanwhile, so that a handler yields after a number of elements.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from anabranch.broker.authorization.peer import UNKNOWN_PEER, Peer
from anabranch.broker.dispatch.request_context import CloseConnection, RequestContext
from anabranch.broker.dispatch.services import Services
from anabranch.broker.tasks import yield_budget

Response = TypeVar("Response")


def context(services: Services, version: int, peer: Peer = UNKNOWN_PEER) -> RequestContext:
    """The context of a request in this version, for a call of its handler."""
    return RequestContext(services, version, "test", peer)


async def refused_after_loss(handler: Callable[[Peer], Coroutine[Any, Any, object]], after: int = 5) -> None:
    """Run a handler whose connection is lost after it has yielded a few times: it has to stop without a response."""
    peer = Peer("127.0.0.1")

    def lose() -> None:
        peer.connection.is_lost = True

    with pytest.raises(CloseConnection):
        await while_it_yields(handler(peer), lose, after)


@contextlib.contextmanager
def manual_clock() -> Iterator[list[float]]:
    """Let the budgets of the block read a clock that the test sets: a list of one time in seconds."""
    time_s = [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yield_budget, "elapsed_clock", lambda: lambda: time_s[0])
        yield time_s


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
        with manual_clock():
            return await handler, others
    finally:
        done = True


async def while_it_yields(
    handler: Coroutine[Any, Any, Response], change: Callable[[], object], after: int = 5
) -> Response:
    """The response of a handler if something changes after it has yielded a few times."""
    with manual_clock():
        working = asyncio.ensure_future(handler)
        for _ in range(after + 1):
            await asyncio.sleep(0)
        assert not working.done(), "it has not yielded so often"
        change()
        return await working
