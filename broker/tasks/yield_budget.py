"""Yields to the event loop while a handler builds a long response, after a number of elements.

A handler uses one `YieldBudget` for all its loops. State may change between two steps, as between two requests, so the
rows of the response must be independent, or come from a snapshot. Do not yield between a check and the append that
relies on it: build the batch first, then check, and append at once. Do not use it for a Fetch, which waits on the
partitions that it has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

Element = TypeVar("Element")
Row = TypeVar("Row")

ELEMENTS_PER_YIELD: Final = 100
"""Number of elements between two yields; each takes 5 to 50 microseconds."""


class YieldBudget:
    """A counter of the elements left before the next yield."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ELEMENTS_PER_YIELD

    def is_spent(self, elements: int = 1) -> bool:
        """Count processed elements; return whether the budget is used up, so that the caller has to yield."""
        self._left -= elements
        if self._left >= 0:
            return False
        self._left = ELEMENTS_PER_YIELD
        return True

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
            self._left -= 1
            if self._left < 0:
                self._left = ELEMENTS_PER_YIELD
                await asyncio.sleep(0)
        return rows
