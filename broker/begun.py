"""Takes the first step of a request's work where the bytes arrive; a task awaits the rest, if there is any.

Most requests are answered without a wait. To wake a task for each of them takes a future and a turn of the loop: three
to four microseconds, a tenth of what a small request costs.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import CancelledError


class Begun:
    """A coroutine that has come to wait for something; it is awaited once."""

    __slots__ = ("_cancelled", "_waits_for", "_work")

    def __init__(self, work: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        """`waits_for` is what the coroutine's first step has yielded: a future, or None for a turn of the loop."""
        self._work = work
        self._waits_for = waits_for
        if waits_for is not None:
            waits_for._asyncio_future_blocking = False  # what a task does at once: so that others can wait for it, too
        self._cancelled: CancelledError | None = None

    def cancel(self, error: CancelledError) -> None:
        """Do what `Task.cancel` does to work that waits: its task was cancelled before it took this over."""
        if self._waits_for is None or not self._waits_for.cancel():
            self._cancelled = error

    def __await__(self) -> Generator[Any, None, Any]:
        work = self._work
        wait: Iterable[Any] = self._first_wait()
        while True:
            try:
                yield from wait
            except BaseException as error:
                step = partial(work.throw, error)
            else:
                step = partial(work.send, None)
            try:
                wait = (step(),)
            except StopIteration as done:
                return done.value
            finally:
                del step  # it may hold an error, and that one this frame

    def _first_wait(self) -> Generator[Any, None, None]:
        """Wait as the task that goes on with the work."""
        cancelled, self._cancelled = self._cancelled, None
        waits_for, self._waits_for = self._waits_for, None
        try:
            if cancelled is not None:
                raise cancelled
            if waits_for is None:
                yield
            else:
                yield from waits_for
        finally:
            del cancelled, waits_for


def begin(work: Coroutine[Any, Any, Any]) -> Any:
    """Take the first step. Returns the outcome if there is one by then, else what is `Begun`."""
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        return done.value
    return Begun(work, waits_for)
