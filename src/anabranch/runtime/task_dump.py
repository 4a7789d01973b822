"""What every task of a process waits for, as text: written on SIGQUIT, like a thread dump of a JVM.

A process in which nothing happens any more shows nothing in its logs, and a profiler sees only the event loop. Each
task's coroutines are followed from the outermost to the one that is suspended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

END: Final = "--- no more tasks"


def log_task_dump(loop: asyncio.AbstractEventLoop) -> None:
    """Write what the loop's tasks wait for to stderr, among the log lines."""
    sys.stderr.write(task_dump(loop) + "\n")
    sys.stderr.flush()


def task_dump(loop: asyncio.AbstractEventLoop) -> str:
    """The tasks that are not done, each with where its coroutines stand."""
    lines: list[str] = []
    for task in sorted(asyncio.all_tasks(loop), key=lambda one: one.get_name()):
        lines.append(f"--- task {task.get_name()}")
        for frame in _frames(task.get_coro()):
            lines.append(f"    {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
    return "\n".join([*lines, END])


def _frames(awaited: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of all that it awaits, the outermost first; what is no coroutine ends it."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
