"""A dump of what every asyncio task awaits, written on SIGQUIT, like a JVM's thread dump.

The logs do not show why a process hangs, and a profiler shows only the event loop. The dump follows each task's
coroutines from the outermost to the suspended one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

END: Final = "--- no more tasks"


def log_task_dump(loop: asyncio.AbstractEventLoop) -> None:
    """Log what the loop's tasks await."""
    sys.stderr.write(task_dump(loop) + "\n")
    sys.stderr.flush()


def task_dump(loop: asyncio.AbstractEventLoop) -> str:
    """The unfinished tasks, each with the stack of its coroutines."""
    lines: list[str] = []
    for task in sorted(asyncio.all_tasks(loop), key=lambda one: one.get_name()):
        lines.append(f"--- task {task.get_name()}")
        for frame in _frames(task.get_coro()):
            lines.append(f"    {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
    return "\n".join([*lines, END])


def _frames(awaited: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and what it awaits, the outermost first; stops at an awaitable that is no coroutine."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
