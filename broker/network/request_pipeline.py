"""The requests of one connection that are taken up and not answered, in their order.

There is one, or a Produce with others behind it: each is taken up when all before it only wait for their effects to be
safe (`settling`). Answers keep the order, and so do failures: what one of them raises is raised when its turn comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from anabranch.broker.network.eager_coroutine import EagerCoroutine

PIPELINED_PRODUCES_MAX: Final = 5
"""How many Produces of a connection wait for replicas at a time: as many as idempotent producers have in flight."""


class RequestPipeline(list[Any]):
    """What is `EagerCoroutine`, its outcome if that was there at once, or its error."""

    __slots__ = ()

    @property
    def accepts_next(self) -> bool:
        """Whether one more may begin behind those that are there."""
        if not 0 < len(self) < PIPELINED_PRODUCES_MAX:
            return False
        last = self[-1]
        return last.awaits_replication if type(last) is EagerCoroutine else not isinstance(last, BaseException)

    @property
    def awaited(self) -> asyncio.Future[Any] | None:
        """What the first one waits for, after which `go_on` may follow; None where it has to be awaited."""
        first = self[0] if self else None
        return first.awaited if type(first) is EagerCoroutine else None

    def step_first(self) -> bool:
        """Take the next step of the first one if what it waits for is done; whether its response is there."""
        first = self[0]
        if type(first) is EagerCoroutine:
            if first.awaited is None or not first.awaited.done():
                return False
            try:
                first = self[0] = first.step()
            except (Exception, asyncio.CancelledError) as error:
                self[0] = error
                return False
        return not isinstance(first, (EagerCoroutine, BaseException))

    async def finish_first(self, before_waiting: Callable[[], None]) -> Any:
        """The response to the first one, which is in work no more then."""
        first = self[0]
        try:
            if type(first) is EagerCoroutine:
                if first.may_suspend:
                    before_waiting()
                return await first
            if isinstance(first, BaseException):
                raise first
            return first
        finally:
            del first, self[0]

    def cancel_first(self, error: asyncio.CancelledError) -> bool:
        """Cancel the first if it waits and is not awaited yet; whether there is one."""
        first = self[0] if self else None
        if type(first) is not EagerCoroutine:
            return False
        first.cancel(error)
        return True

    def abandon(self) -> None:
        """Nobody will answer what is still in work."""
        given_up = [one for one in self if type(one) is EagerCoroutine]
        self.clear()
        for one in given_up:
            one.throw_cancelled(asyncio.CancelledError())
