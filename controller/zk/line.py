"""One direction of a session's connection to ZooKeeper in this process: messages arrive in order, possibly late."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any


class Line:
    """Runs posted callbacks in their order: in the next iteration of the loop, or after `delay_s`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way: deque[tuple[Callable[[], Any], contextvars.Context]] = deque()
        self._timers: deque[asyncio.TimerHandle] = deque()
        self.delay_s = 0.0

    @property
    def idle(self) -> bool:
        """Whether nothing is late: what is posted now arrives at once."""
        return not self.delay_s and not self._under_way

    def post(self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None) -> None:
        """Run a callback when all that was posted before has run, and the delay is over."""
        if self.idle:
            self._loop.call_soon(callback, *args, context=context)
            return
        self._under_way.append((partial(callback, *args), context or contextvars.copy_context()))
        due_s = self._loop.time() + self.delay_s
        if self._timers:
            due_s = max(due_s, self._timers[-1].when())
        self._timers.append(self._loop.call_at(due_s, self._arrive))

    def flush(self) -> None:
        """Let all that is under way arrive in the next iteration."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        while self._under_way:
            callback, context = self._under_way.popleft()
            self._loop.call_soon(callback, context=context)

    def _arrive(self) -> None:
        """Run the oldest: timers of one time are not in the order in which they were set, callbacks are."""
        self._timers.popleft()
        callback, context = self._under_way.popleft()
        context.run(callback)
