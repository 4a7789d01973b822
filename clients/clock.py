"""The time of day, for timestamps that leave the process. Everything that waits uses the loop's clock instead.

`elapsed_clock` measures what other processes may have done meanwhile: it goes on while this one is stopped.

Where a loop runs, the time of day is taken once and goes on with the loop's clock (`follow_loop_ms`): steps of the
system's clock do not show in timestamps, and a simulated loop controls them like everything else (D8).
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable


def wall_clock_ms() -> int:
    """Milliseconds since the epoch, for where no loop runs and for people to read."""
    return time.time_ns() // 1_000_000


def follow_loop_ms() -> Callable[[], int]:
    """A clock of milliseconds since the epoch that runs with the running loop's from now on.

    A loop that keeps a time of day, as one with a clock for each cluster does, has `time_of_day`.
    """
    loop = asyncio.get_running_loop()
    kept: Callable[[], Callable[[], int] | None] = getattr(loop, "time_of_day", lambda: None)
    if (own := kept()) is not None:
        return own
    loop_time = loop.time
    offset_s = wall_clock_ms() / 1000 - loop_time()
    return lambda: int((loop_time() + offset_s) * 1000)


def elapsed_clock() -> Callable[[], float]:
    """Seconds that go by also while this process is stopped, its loop is blocked, or the machine is suspended.

    For timeouts by which others judge this process, such as a session's. A loop's own clock need not count all of that
    time: on Linux it leaves out suspension, and uvloop reads its clock once per turn. A loop with a time of its own, as
    in a simulation, has `elapsed_s`.
    """
    own: Callable[[], float] | None = getattr(asyncio.get_running_loop(), "elapsed_s", None)
    return own or _elapsed_s


if hasattr(time, "CLOCK_BOOTTIME"):
    _elapsed_s: Callable[[], float] = functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
else:
    _elapsed_s = time.monotonic  # noqa: TID251 -- this module is where it is read
