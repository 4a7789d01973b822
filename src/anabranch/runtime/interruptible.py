"""Runs a command's coroutine so that Ctrl-C cancels it between two callbacks of its event loop.

`asyncio.run` cancels the task inside the callback that SIGINT interrupts. A callback that has just found a future
pending then sets the result of a cancelled one, and asyncio prints a traceback.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def run_interruptible(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, and return its result.

    Raises:
        KeyboardInterrupt: SIGINT came, and the coroutine has been cancelled; at once for a second SIGINT.
    """
    interrupted = False

    async def cancellable() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def on_interrupt(number: int, frame: FrameType | None) -> None:
            nonlocal interrupted
            if interrupted:
                raise KeyboardInterrupt
            interrupted = True
            loop.call_soon_threadsafe(task.cancel)

        before = signal.getsignal(signal.SIGINT)
        if not callable(before) or threading.current_thread() is not threading.main_thread():
            return await main  # SIGINT is ignored, or goes to another thread
        signal.signal(signal.SIGINT, on_interrupt)
        try:
            return await main
        finally:
            signal.signal(signal.SIGINT, before)

    try:
        return asyncio.run(cancellable())
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
