"""Makes application tasks wait for a producer's buffer: for free space, or for a flush.

`SendQueue` is where `send` waits while the buffer is full: first in, first out, one at a time, so that records are
accepted in the order of the calls. A flush ends with the last of the records accepted before it began.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from anabranch.clients.producer.accumulator import Accumulator
from anabranch.clients.producer.producer_record import Record


class SendQueue:
    """The calls of `send` that wait for space. Call `admit` when space may be free; `wake` wakes the sender."""

    def __init__(self, accumulator: Accumulator, wake: Callable[[], None]) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self._accumulator = accumulator
        self._wake = wake

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for space, behind earlier calls.

        The call at the head stays there until its record is accepted, so no other call overtakes it.
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
            self.admit()

    def admit(self) -> None:
        """Admit the first waiting call."""
        if self.waiting and not self._accumulator.full and not self.waiting[0].done():
            self.waiting[0].set_result(None)


class Flushes:
    """The flushes in progress. `wake` wakes the sender. Source: Kafka's `RecordAccumulator.awaitFlushCompletion`."""

    def __init__(self, accumulator: Accumulator, wake: Callable[[], None]) -> None:
        self._accumulator = accumulator
        self._wake = wake
        self.pending: list[Flush] = []

    async def wait(self) -> None:
        """Wait until every record accepted so far is stored or has failed, without waiting for batches to fill."""
        accumulator = self._accumulator
        flush = Flush(accumulator.order, accumulator.outstanding, asyncio.get_running_loop().create_future())
        self.pending.append(flush)
        accumulator.hurry += 1
        self._wake()
        try:
            await flush.finished
        finally:
            accumulator.hurry -= 1
            self.pending.remove(flush)


class Flush:
    """Counts the unsettled records of a flush: those accepted before it."""

    __slots__ = ("_limit", "_remaining", "finished")

    def __init__(self, limit: int, remaining: int, finished: asyncio.Future[None]) -> None:
        self._limit = limit
        self._remaining = remaining
        self.finished = finished

    def release(self, records: Sequence[Record]) -> None:
        """Note records that are stored or have failed."""
        self._remaining -= sum(record.order < self._limit for record in records)
        if self._remaining <= 0 and not self.finished.done():
            self.finished.set_result(None)
