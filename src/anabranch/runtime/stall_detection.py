"""Waits for child processes as long as they make progress, even slowly on a busy machine.

A fixed timeout cannot distinguish a slow child from a broken one. These waits fail when a child's output, processor
time and all other progress values stay the same for `STALL_TIMEOUT_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

STALL_TIMEOUT_S: Final = 180.0
PROCESSOR_STEP_TICKS: Final = 500
"""Processor time counts in steps of 5 s (a tick is 10 ms): timers of an idle process use less within the timeout."""
POLL_S: Final = 0.25
PROC: Final = Path("/proc")

T = TypeVar("T")


class Stalled(Exception):
    """No progress for the whole stall timeout."""

    def __init__(self, stall_timeout_s: float) -> None:
        super().__init__(f"no progress for {stall_timeout_s:g} s")


class StallDetector:
    """Compares progress values: one that stays the same for `timeout_s` is a stall."""

    def __init__(self, timeout_s: float, value: object, now_s: float) -> None:
        self._timeout_s = timeout_s
        self._value = value
        self._changed_s = now_s

    def is_stalled(self, value: object, now_s: float) -> bool:
        """Whether the value has been unchanged for the whole timeout."""
        if value != self._value:
            self._value, self._changed_s = value, now_s
        return now_s - self._changed_s >= self._timeout_s


async def wait_while_progressing(
    awaitable: Awaitable[T], progress: Callable[[], object], *, stall_timeout_s: float | None = STALL_TIMEOUT_S
) -> T:
    """Await something as long as `progress()` changes. Raises Stalled; None sets no limit.

    The awaitable is cancelled when it stalls, or when this wait is cancelled.
    """
    if stall_timeout_s is None:
        return await awaitable
    clock = asyncio.get_running_loop().time
    task = asyncio.ensure_future(awaitable)
    detector = StallDetector(stall_timeout_s, progress(), clock())
    try:
        while not (await asyncio.wait((task,), timeout=min(POLL_S, stall_timeout_s)))[0]:
            if detector.is_stalled(progress(), clock()):
                raise Stalled(stall_timeout_s)
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait((task,))


def process_progress(pid: int, *outputs: Path) -> tuple[int, ...]:
    """The progress of a process: its processor time in coarse steps, and the sizes of the files that it writes."""
    sizes = [path.stat().st_size if path.exists() else 0 for path in outputs]
    return processor_ticks(pid) // PROCESSOR_STEP_TICKS, *sizes


def processor_ticks(pid: int) -> int:
    """The processor time of a process and its descendants, in clock ticks; 0 where there is no /proc."""
    try:
        # The name, in parentheses, may contain spaces; utime, stime, cutime and cstime are fields 14 to 17.
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        children = [word for one in (PROC / str(pid) / "task").glob("*/children") for word in one.read_text().split()]
    except OSError:
        return 0  # the process has ended, or this is not Linux
    return sum(map(int, fields[11:15])) + sum(processor_ticks(int(child)) for child in children)
