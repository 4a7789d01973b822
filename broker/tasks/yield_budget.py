"""Yields to the event loop while a handler builds a long response, after some time.

A handler uses one `YieldBudget` for all its loops. State may change between two steps, as between two requests, so the
rows of the response must be independent, or come from a snapshot. Do not yield between a check and the append that
relies on it: build the batch first, then check, and append at once. Do not use it for a Fetch, which waits on the
partitions that it has read.

The clock is the loop's own if it has one, as in a simulation, where it stands still during a callback: then the budget
is a number of elements, so that a schedule depends on no real clock. A short request reads no clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from anabranch.clients.clock import elapsed_clock

Element = TypeVar("Element")
Row = TypeVar("Row")

TIME_PER_YIELD_S: Final = 0.001
"""Time between two yields."""
ELEMENTS_PER_READING: Final = 20
"""Number of elements between two readings of the clock; most elements take 1 to 50 microseconds."""
ELEMENTS_PER_YIELD: Final = 100
"""Number of elements between two yields while the clock stands still."""


class YieldBudget:
    """The time, and the elements, since the last yield."""

    __slots__ = ("_counted", "_left", "_since_s")

    def __init__(self) -> None:
        self._left = ELEMENTS_PER_READING
        self._counted = 0
        self._since_s = -1.0

    def is_spent(self, elements: int = 1) -> bool:
        """Count processed elements; return whether the budget is used up, so that the caller has to yield."""
        self._left -= elements
        return self._left <= 0 and self._is_time_up()

    async def spend(self, elements: int = 1) -> None:
        """Count processed elements; yield to the loop if the budget is used up."""
        if self.is_spent(elements):
            await asyncio.sleep(0)

    async def map(self, elements: Iterable[Element], answer: Callable[[Element], Row]) -> list[Row]:
        """Call `answer` with each element; return the results in order."""
        await self.spend()
        rows = []
        for one in elements:
            rows.append(answer(one))
            if self.is_spent():
                await asyncio.sleep(0)
        return rows

    def _is_time_up(self) -> bool:
        """Read the clock. The first reading after a yield starts the time."""
        self._counted += ELEMENTS_PER_READING - self._left
        self._left = ELEMENTS_PER_READING
        now_s = elapsed_clock()()
        if self._since_s < 0:
            self._since_s = now_s
        passed_s = now_s - self._since_s
        if passed_s < TIME_PER_YIELD_S and (passed_s > 0 or self._counted < ELEMENTS_PER_YIELD):
            return False
        self._counted, self._since_s = 0, -1.0
        return True
