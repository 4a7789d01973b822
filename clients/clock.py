"""The time of day, for timestamps that leave the process. All waiting uses the loop's clock instead.

`elapsed_clock` measures time in which other processes may act: it continues while this one is stopped.

In a running loop the system's time of day is read once and then follows `elapsed_clock` (`time_of_day_clock`): steps of
the system's clock do not show in timestamps, the time of a suspended machine does, and a simulated loop controls them
like everything else (D8).
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable


def wall_clock_ms() -> int:
    """Return milliseconds since the epoch, where no loop runs and for display."""
    return time.time_ns() // 1_000_000


def time_of_day_clock() -> Callable[[], int]:
    """Return a clock of milliseconds since the epoch that does not step when the system's clock does.

    A loop with its own time of day, such as one with a clock for each cluster, has `time_of_day`.
    """
    loop = asyncio.get_running_loop()
    kept: Callable[[], Callable[[], int] | None] = getattr(loop, "time_of_day", lambda: None)
    if (own := kept()) is not None:
        return own
    elapsed_s = elapsed_clock()
    offset_s = wall_clock_ms() / 1000 - elapsed_s()
    return lambda: int((elapsed_s() + offset_s) * 1000)


def elapsed_clock() -> Callable[[], float]:
    """Return a clock in seconds that continues while the process is stopped, the loop blocked, or the machine
    suspended.

    For timeouts by which others judge this process, such as a session's. A loop's own clock may miss some of that time:
    on Linux it excludes suspension, and uvloop reads its clock once per iteration. A loop with its own time, as in a
    simulation, has `elapsed_s`.
    """
    own: Callable[[], float] | None = getattr(asyncio.get_running_loop(), "elapsed_s", None)
    return own or system_elapsed_s


if hasattr(time, "CLOCK_BOOTTIME"):
    system_elapsed_s: Callable[[], float] = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    system_elapsed_s = time.monotonic  # noqa: TID251 -- this module is where it is read
"""Returns the seconds since some moment, also those in which the machine was suspended."""
