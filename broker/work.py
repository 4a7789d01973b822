"""The requests of one connection that are taken up and not answered, in their order.

There is one, or a Produce with others behind it: each is taken up when all before it only wait for their effects to be
safe (`settling`). Answers keep the order, and so do failures: what one of them raises is raised when its turn comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from anabranch.broker.begun import Begun

IN_WORK_MAX: Final = 5
"""How many Produces of a connection wait for replicas at a time: as many as idempotent producers have in flight."""


class Work:
    """What is `Begun`, its outcome if that was there at once, or its error."""

    __slots__ = ("_taken_up",)

    def __init__(self) -> None:
        self._taken_up: list[Any] = []

    def __len__(self) -> int:
        return len(self._taken_up)

    @property
    def lets_begin(self) -> bool:
        """Whether one more may begin behind those that are there."""
        if not 0 < len(self._taken_up) < IN_WORK_MAX:
            return False
        last = self._taken_up[-1]
        return last.settles if type(last) is Begun else not isinstance(last, BaseException)

    def add(self, outcome: Any) -> None:
        """The next request is taken up."""
        self._taken_up.append(outcome)

    async def first(self, before_waiting: Callable[[], None]) -> Any:
        """The response to the first one, which is in work no more then."""
        first = self._taken_up[0]
        try:
            if type(first) is Begun:
                if first.may_wait:
                    before_waiting()
                return await first
            if isinstance(first, BaseException):
                raise first
            return first
        finally:
            del first, self._taken_up[0]

    def cancel(self, error: asyncio.CancelledError) -> None:
        """Cancel the first, which waits and is not awaited yet."""
        self._taken_up[0].cancel(error)

    def give_up(self) -> None:
        """Nobody will answer what is still in work."""
        taken_up, self._taken_up = self._taken_up, []
        for one in taken_up:
            if type(one) is Begun:
                one.give_up(asyncio.CancelledError())
