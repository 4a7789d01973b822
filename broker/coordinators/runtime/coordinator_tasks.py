"""The background of a coordinator: the tasks that it owns, and one timer for all its deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, Generic, TypeVar

from anabranch.broker.coordinators.runtime.deadlines import Deadlines
from anabranch.clients.timer import Timer

Key = TypeVar("Key", bound=Hashable)
TOLERANCE_S: Final = 0.001
"""How much later than its deadline the timer may be without being reset."""


class CoordinatorTasks:
    """Tasks that end with their owner. A task that fails is reported to the loop's exception handler."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: dict[asyncio.Task[None], None] = {}  # ordered, so that they are cancelled in start order

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in a task, which is cancelled when the owner stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._on_finished)

    async def stop(self) -> None:
        """Cancel the running tasks and wait for their end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (bug := task.exception()) is not None:
            task.get_loop().call_exception_handler({"message": f"{self._owner} has a bug", "exception": bug})


class CoordinatorTimer(Generic[Key]):
    """A timer that calls its owner when the first of many deadlines has passed."""

    def __init__(self, clock_ms: Callable[[], int], ring: Callable[[Key, int], None]) -> None:
        """`ring(key, now_ms)` is called once for each key whose deadline has passed."""
        self._clock_ms = clock_ms
        self._ring = ring
        self._deadlines: Deadlines[Key] = Deadlines()
        self._timer = Timer(self.wake)
        self._started = False

    def set(self, key: Key, due_ms: int | None) -> None:
        """Set the deadline of `key`, unless it has an earlier one; None changes nothing."""
        self._deadlines.set(key, due_ms)
        if self._started:
            self._set_timer()

    def forget(self, key: Key) -> None:
        """Remove the deadline of `key`."""
        self._deadlines.forget(key)

    def start(self) -> None:
        """Start the timer; needs a running loop. Further calls change nothing."""
        if not self._started:
            self._started = True
            self._set_timer()

    def stop(self) -> None:
        """Stop the timer."""
        self._started = False
        self._timer.cancel()

    def _set_timer(self) -> None:
        due_ms = self._deadlines.first()
        if due_ms is None:
            return
        # The clock counts whole milliseconds: never wake too early. It may also have jumped forward since the timer was
        # set, so compare times of the loop; otherwise all requests would wait for a deadline that has already passed.
        delay_ms = max(due_ms - self._clock_ms(), 0) + 1
        when = asyncio.get_running_loop().time() + delay_ms / 1000
        if when + TOLERANCE_S < self._timer.due:
            self._timer.set_by(when)

    def wake(self) -> None:
        """Call the owner for every key whose deadline has passed."""
        self._timer.cancel()
        now_ms = self._clock_ms()
        for key in self._deadlines.pop_due(now_ms):
            self._ring(key, now_ms)
        if self._started:
            self._set_timer()
