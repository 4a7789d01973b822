"""The time of day, for timestamps that leave the process. Everything that waits uses the loop's clock instead.

Where a loop runs, the time of day is taken once and goes on with the loop's clock (`follow_loop_ms`): steps of the
system's clock do not show in timestamps, and a simulated loop controls them like everything else (D8).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def wall_clock_ms() -> int:
    """Milliseconds since the epoch, for where no loop runs and for people to read."""
    return time.time_ns() // 1_000_000


def follow_loop_ms() -> Callable[[], int]:
    """A clock of milliseconds since the epoch that runs with the running loop's from now on."""
    loop_time = asyncio.get_running_loop().time
    offset_s = wall_clock_ms() / 1000 - loop_time()
    return lambda: int((loop_time() + offset_s) * 1000)
