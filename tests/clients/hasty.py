"""A loop whose timers ring a moment before the clock says so."""

from __future__ import annotations

import asyncio
from typing import Any


class HastyLoop(asyncio.SelectorEventLoop):
    """So do uvloop's timers: its clock counts milliseconds, and the sum of two is rounded."""

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return super().call_at(when - 0.002, callback, *args, context=context)
