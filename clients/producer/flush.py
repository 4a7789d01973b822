"""What a flush waits for: the records that were accepted before it, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from anabranch.clients.producer.queues import Record


class Flush:
    """Counts down the records that a flush waits for: those accepted before it."""

    __slots__ = ("_limit", "_remaining", "finished")

    def __init__(self, limit: int, remaining: int, finished: asyncio.Future[None]) -> None:
        self._limit = limit
        self._remaining = remaining
        self.finished = finished

    def settled(self, records: Sequence[Record]) -> None:
        """Some records are stored or have failed."""
        self._remaining -= sum(record.order < self._limit for record in records)
        if self._remaining <= 0 and not self.finished.done():
            self.finished.set_result(None)
