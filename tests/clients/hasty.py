"""A loop whose timers ring a moment before the clock says so, and whose handles do not tell when."""

from __future__ import annotations

import asyncio
from typing import Any


class HastyLoop(asyncio.SelectorEventLoop):
    """So do uvloop's timers: its clock counts milliseconds, the sum of two is rounded, and what is near is no timer."""

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        if when - self.time() < 0.001:
            return self.call_soon(callback, *args, context=context)
        return super().call_at(when - 0.002, callback, *args, context=context)
