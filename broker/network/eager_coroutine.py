"""Takes the first step of a request's work where the bytes arrive, and the next ones where its waits end.

Most requests are answered without a wait. To wake a task for each of them takes a future and a turn of the loop: three
to four microseconds, a tenth of what a small request costs. A task may await what is left of the work at any time.

Work that has come so far that it only waits for its effect to be safe says so by what it waits for, a
`ReplicationFuture`: requests behind it on its connection may begin.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.broker.tasks.replication_future import ReplicationFuture

if TYPE_CHECKING:
    from asyncio import CancelledError


class EagerCoroutine:
    """A coroutine that has come to wait for something; it is awaited once."""

    __slots__ = ("_cancelled", "_coroutine", "_on_replication_wait", "awaited", "awaits_replication")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], awaited: Any, on_replication_wait: Callable[[], None] | None = None
    ) -> None:
        """`waits_for` is what the coroutine's first step has yielded: a future, or None for a turn of the loop.

        `settling` is called if it comes to wait for its effect to be safe while it is awaited.
        """
        self._coroutine = coroutine
        self._cancelled: CancelledError | None = None
        self._on_replication_wait = on_replication_wait
        self._suspend_on(awaited)

    def _suspend_on(self, waits_for: Any) -> None:
        self.awaited = waits_for
        """A future, unless it only waits for a turn of the loop or is awaited by now."""
        if waits_for is not None:
            waits_for._asyncio_future_blocking = False  # what a task does at once: so that others can wait for it, too
        self.awaits_replication = type(waits_for) is ReplicationFuture
        """Whether it waits for nothing but its effect to be safe."""

    @property
    def may_suspend(self) -> bool:
        """Whether it may take turns of the loop until it is done."""
        return not self.awaits_replication or self.awaited is None or not self.awaited.done()

    def step(self) -> Any:
        """Take the next step, if nobody awaits it: the future that it waits for is done.

        Returns the outcome if there is one by then, else itself.
        """
        self.awaited = None
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration as done:
            return done.value
        self._suspend_on(waits_for)
        if self.awaits_replication and self._on_replication_wait is not None:
            self._on_replication_wait()
        return self

    def throw_cancelled(self, error: CancelledError) -> None:
        """End it as a cancelled task would, if nobody awaits it."""
        try:
            self._coroutine.throw(error)
        except (StopIteration, type(error)):
            return
        self._coroutine.close()

    def cancel(self, error: CancelledError) -> None:
        """Do what `Task.cancel` does to work that waits: its task was cancelled before it took this over."""
        if self.awaited is None or not self.awaited.cancel():
            self._cancelled = error

    def __await__(self) -> Generator[Any, None, Any]:
        work = self._coroutine
        wait: Iterable[Any] = self._first_wait()
        while True:
            try:
                yield from wait
            except BaseException as error:
                step = partial(work.throw, error)
            else:
                step = partial(work.send, None)
            try:
                waits_for = step()
                wait = (waits_for,)
            except StopIteration as done:
                return done.value
            finally:
                del step  # it may hold an error, and that one this frame
            self.awaits_replication = type(waits_for) is ReplicationFuture
            if self.awaits_replication and self._on_replication_wait is not None:
                self._on_replication_wait()

    def _first_wait(self) -> Generator[Any, None, None]:
        """Wait as the task that goes on with the work."""
        cancelled, self._cancelled = self._cancelled, None
        waits_for, self.awaited = self.awaited, None
        try:
            if cancelled is not None:
                raise cancelled
            if waits_for is None:
                yield
            else:
                yield from waits_for
        finally:
            del cancelled, waits_for


def start_eagerly(coroutine: Coroutine[Any, Any, Any], on_replication_wait: Callable[[], None] | None = None) -> Any:
    """Take the first step. Returns the outcome if there is one by then, else what is `EagerCoroutine`."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration as done:
        return done.value
    return EagerCoroutine(coroutine, waits_for, on_replication_wait)
