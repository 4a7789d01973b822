"""The started and unanswered requests of one connection, in order.

It holds one request, or a Produce with others behind it. Each starts when all before it only wait for replication.
Responses keep the order, and so do failures: an exception is raised when its request is the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from anabranch.broker.network.eager_coroutine import EagerCoroutine

PIPELINED_PRODUCES_MAX: Final = 5
"""The most Produces of a connection that wait for replicas: Kafka's limit of in-flight requests for idempotence."""


class RequestPipeline(list[Any]):
    """A list of `EagerCoroutine`s, outcomes of those that finished at once, and errors."""

    __slots__ = ()

    @property
    def accepts_next(self) -> bool:
        """Return whether another request may start behind the present ones."""
        if not 0 < len(self) < PIPELINED_PRODUCES_MAX:
            return False
        last = self[-1]
        return last.awaits_replication if type(last) is EagerCoroutine else not isinstance(last, BaseException)

    @property
    def awaited(self) -> asyncio.Future[Any] | None:
        """Return the future of the first request, after which `step_first` may follow; None if it has to be awaited."""
        first = self[0] if self else None
        return first.awaited if type(first) is EagerCoroutine else None

    def wake_first(self) -> None:
        """Note that the future of the first request has called back."""
        self[0].woken = True

    def step_first(self) -> bool:
        """Run the next step of the first request if it may run; return whether its response exists."""
        first = self[0]
        if type(first) is EagerCoroutine:
            if not first.may_step:
                return False
            try:
                first = self[0] = first.step()
            except (Exception, asyncio.CancelledError) as error:
                self[0] = error
                return False
        return not isinstance(first, (EagerCoroutine, BaseException))

    async def finish_first(self, before_waiting: Callable[[], None]) -> Any:
        """Await and remove the first request; return its response."""
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
        """Cancel the first request if it waits and is not awaited yet; return whether there is one."""
        first = self[0] if self else None
        if type(first) is not EagerCoroutine:
            return False
        first.cancel(error)
        return True

    def abandon(self) -> None:
        """Drop all requests without a response."""
        given_up = [one for one in self if type(one) is EagerCoroutine]
        self.clear()
        for one in given_up:
            one.throw_cancelled(asyncio.CancelledError())
