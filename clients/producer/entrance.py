"""Where records wait for room in the producer's buffer: first come, first served, one at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable

from anabranch.clients.producer.accumulator import Accumulator


class Entrance:
    """`let_in` is to be called whenever there may be room again; `wake` makes the sender look for some."""

    def __init__(self, accumulator: Accumulator, wake: Callable[[], None]) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self._accumulator = accumulator
        self._wake = wake

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for room, behind whoever waits already.

        Whoever has the turn keeps its place until its record is in: nobody slips past, and one enters at a time.
        """
        place: asyncio.Future[None] | None = None
        try:
            if self._accumulator.full or self.waiting:
                place = asyncio.get_running_loop().create_future()
                self.waiting.append(place)
                self._wake()
                await place
            yield
        finally:
            if place is not None:
                self.waiting.remove(place)
            self.let_in()

    def let_in(self) -> None:
        """Give the turn to the first of those who wait."""
        if self.waiting and not self._accumulator.full and not self.waiting[0].done():
            self.waiting[0].set_result(None)
