"""Builds long responses in steps: after a number of elements, other tasks run.

A handler uses one `YieldBudget` for all its loops. State may change between two steps, as between two requests. Only
responses whose rows are independent may be built so; not a group's offsets, a Fetch (which waits on what it read), or
what an append must find unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

Asked = TypeVar("Asked")
Row = TypeVar("Row")

ELEMENTS_PER_YIELD: Final = 100
"""Elements, of 5 to 50 microseconds each."""


class YieldBudget:
    """The elements left before the next yield."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ELEMENTS_PER_YIELD

    async def spend(self, elements: int = 1) -> None:
        """Count processed elements; yield to the loop if the budget is used up."""
        self._left -= elements
        if self._left < 0:
            self._left = ELEMENTS_PER_YIELD
            await asyncio.sleep(0)

    async def map(self, asked: Iterable[Asked], answer: Callable[[Asked], Row]) -> list[Row]:
        """Answer each element; return the answers in order."""
        await self.spend()
        rows = []
        for one in asked:
            rows.append(answer(one))
            self._left -= 1
            if self._left < 0:
                self._left = ELEMENTS_PER_YIELD
                await asyncio.sleep(0)
        return rows
