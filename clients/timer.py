"""An event loop timer that several deadlines share: it fires at the earliest of them.

It stores its own due time, because a loop's handle need not have one: clients run on the application's loop, and
uvloop's `call_at` returns a plain `Handle` without `when` for less than a millisecond.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable


class Timer:
    """Calls `ring` once, at the earliest time set; its owner then sets it for later deadlines."""

    __slots__ = ("_handle", "_ring", "due")

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._handle: asyncio.Handle | None = None
        self.due = math.inf
        """When it fires, by the loop's clock; infinity while it is not set."""

    def set_by(self, due: float) -> None:
        """Fire at `due`, or earlier if set earlier. Needs a running loop."""
        if due < self.due:
            if self._handle is not None:
                self._handle.cancel()
            self.due = due
            self._handle = asyncio.get_running_loop().call_at(due, self._rings)

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.due = math.inf

    def _rings(self) -> None:
        self._handle = None
        self.due = math.inf
        self._ring()
