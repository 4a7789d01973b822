"""Long answers are built in steps: after so many elements the loop has others work before it goes on.

A handler works through what a request names with one `Turns`, over all its loops. What it reads may change between two
steps, as it may between two requests: so only answers whose rows stand alone are built so. Whatever has to be told of
one moment is not (a group's offsets; a Fetch, which parks on what it saw), nor what an append must find unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

Asked = TypeVar("Asked")
Row = TypeVar("Row")

ELEMENTS_PER_YIELD: Final = 100
"""Elements, of some 5 to 50 microseconds each."""


class YieldBudget:
    """How much of a step is left."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = ELEMENTS_PER_YIELD

    async def spend(self, elements: int = 1) -> None:
        """So many are done; perhaps it is the others' turn."""
        self._left -= elements
        if self._left < 0:
            self._left = ELEMENTS_PER_YIELD
            await asyncio.sleep(0)

    async def map(self, asked: Iterable[Asked], answer: Callable[[Asked], Row]) -> list[Row]:
        """The answer to each, in their order."""
        await self.spend()
        rows = []
        for one in asked:
            rows.append(answer(one))
            self._left -= 1
            if self._left < 0:
                self._left = ELEMENTS_PER_YIELD
                await asyncio.sleep(0)
        return rows
