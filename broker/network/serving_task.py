"""The task of one connection, and the callbacks that run as this task while it waits.

Waking a task for each request costs a tenth of a small request (`eager_coroutine`). So the callback that receives a
request processes it, as the task: `asyncio.timeout` asks for the current task, and a context variable that is set
before a wait is read after it.

Invariant: a callback runs as the task only between two steps of the task, and never inside another task. An exception
of a callback is raised in the task, which handles all exceptions. Source: `asyncio.Task`, which enters and leaves each
of its steps by the same two functions.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any


class ServingTask:
    """The task that serves one connection."""

    __slots__ = ("_context", "_loop", "task", "wakeup")

    def __init__(self) -> None:
        self._context = contextvars.copy_context()
        self.task: asyncio.Task[None] | None = None
        """None until the task has started."""
        self.wakeup: asyncio.Future[None] | None = None
        """The future that ends `wait`; None while the task does something else."""

    def start(self, loop: asyncio.AbstractEventLoop, serve: Coroutine[Any, Any, None]) -> None:
        """Start the task."""
        self._loop = loop
        self.task = loop.create_task(serve, context=self._context)

    @property
    def is_waiting(self) -> bool:
        """Return whether the task waits for `wake`."""
        return self.wakeup is not None and not self.wakeup.done()

    async def wait(self) -> None:
        """Wait, as the task, for `wake`. Raises the exceptions of callbacks."""
        self.wakeup = self._loop.create_future()
        try:
            await self.wakeup
        finally:
            self.wakeup = None

    def wake(self) -> None:
        """Continue the task, if it waits."""
        if self.wakeup is not None and not self.wakeup.done():
            self.wakeup.set_result(None)

    def process(self, process: Callable[[], bool]) -> bool:
        """Run `process` as the waiting task, and return its result; False if the task is to continue itself."""
        wakeup, loop, task = self.wakeup, self._loop, self.task
        assert wakeup is not None and task is not None
        try:
            asyncio._enter_task(loop, task)
        except RuntimeError:  # a closed TLS transport delivers its buffered data in the closing task
            wakeup.set_result(None)
            return False
        try:
            return self._context.run(process) and not wakeup.done()
        except (Exception, asyncio.CancelledError) as error:
            if not wakeup.done():
                wakeup.set_exception(error)
            return False
        finally:
            del wakeup  # it may hold an exception, which refers to this frame and to a request of megabytes
            asyncio._leave_task(loop, task)

    def run(self, callback: Callable[[], None]) -> None:
        """Run a callback as the task, which may wait for anything. The callback raises nothing."""
        task = self.task
        assert task is not None
        asyncio._enter_task(self._loop, task)
        try:
            self._context.run(callback)
        finally:
            asyncio._leave_task(self._loop, task)
