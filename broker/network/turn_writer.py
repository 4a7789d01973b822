"""Writes the responses of one turn of the event loop together, so that a client with many connections is woken once.

Such a client sleeps until a response arrives, and the system call that writes this response has to wake it: two thirds
of the cost of a small write. The first response of a turn is written at once. The others wait until the turn ends, or
until `WAITING_MAX` of them wait: by then the client is awake, and it has more to read before it sleeps again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

WAITING_MAX: Final = 16
"""The most writes that wait: they take as long as the requests that are processed meanwhile, about a millisecond."""


class TurnWriter:
    """The writes of a server in one turn of its event loop."""

    __slots__ = ("_loop", "_waiting", "_wrote")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[Callable[[], None]] = []
        self._wrote = False

    def write(self, write: Callable[[], None]) -> None:
        """Call `write` now, or with the other writes of this turn."""
        if not self._wrote:
            self._wrote = True
            self._loop.call_soon(self._end_turn)
            write()
            return
        self._waiting.append(write)
        if len(self._waiting) == WAITING_MAX:
            self._write_all()

    def _end_turn(self) -> None:
        self._wrote = False
        self._write_all()

    def _write_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for write in waiting:
            write()
