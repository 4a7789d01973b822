"""One timer of the event loop that several deadlines share: it rings at the earliest of them.

It remembers itself when it is due, because a loop's handle need not tell: the clients run on the application's loop,
and uvloop answers `call_at` with a plain `Handle`, which has no `when`, where less than a millisecond is left.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Timer:
    """Calls `ring` once, at the earliest time it was set to; its owner then sets it again for what is due later."""

    __slots__ = ("_handle", "_ring", "due")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._handle: asyncio.Handle | None = None
        self.due = math.inf
        """When it rings, by the loop's clock; infinity while it is not set."""

    def set_by(self, due: float) -> None:
        """Ring at `due`, or earlier if that was asked before. Needs a running loop."""
        if due < self.due:
            if self._handle is not None:
                self._handle.cancel()
            self.due = due
            self._handle = asyncio.get_running_loop().call_at(due, self._rings)

    def cancel(self) -> None:
        """Do not ring."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.due = math.inf

    def _rings(self) -> None:
        self._handle = None
        self.due = math.inf
        self._ring()
