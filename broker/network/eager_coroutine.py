"""Runs the first step of a request's coroutine synchronously, and the next steps in the callbacks of its futures.

Most requests are answered without a wait. Waking a task for each of them costs a future and an iteration of the loop:
three to four microseconds, a tenth of the cost of a small request. A task may await the rest of the coroutine at any
time.

A coroutine that only waits for replication awaits a `ReplicationFuture`; then the next requests of its connection may
start.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.broker.tasks.replication_future import ReplicationFuture

if TYPE_CHECKING:
    from asyncio import CancelledError


class EagerCoroutine:
    """A suspended coroutine, which can be awaited once."""

    __slots__ = ("_cancelled", "_coroutine", "_on_replication_wait", "awaited", "awaits_replication", "woken")

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], awaited: Any, on_replication_wait: Callable[[], None] | None = None
    ) -> None:
        """`awaited` is what the first step yielded: a future, or None for an iteration of the loop.

        `on_replication_wait` is called if the coroutine begins to wait for replication while it is awaited.
        """
        self._coroutine = coroutine
        self._cancelled: CancelledError | None = None
        self._on_replication_wait = on_replication_wait
        self._suspend_on(awaited)

    def _suspend_on(self, waits_for: Any) -> None:
        self.awaited = waits_for
        """The awaited future; None while it waits for an iteration of the loop, or once the coroutine itself is
        awaited.
        """
        if waits_for is not None:
            waits_for._asyncio_future_blocking = False  # as a task does at once: others can wait for it, too
        self.awaits_replication = type(waits_for) is ReplicationFuture
        """Whether it waits for replication only."""
        self.woken = False
        """Whether a callback of the awaited future has run, so that all earlier ones have."""

    @property
    def may_step(self) -> bool:
        """Return whether the next step may run now, if no task awaits it.

        Pitfall: a future is done before its callbacks run. A step that precedes them finds the state that they end:
        asyncio registers a connecting socket until then, and refuses to do so once the socket has a transport.
        """
        awaited = self.awaited
        return awaited is not None and awaited.done() and (self.awaits_replication or self.woken)

    @property
    def may_suspend(self) -> bool:
        """Return whether it may yield to the loop until it is done."""
        return not self.awaits_replication or self.awaited is None or not self.awaited.done()

    def step(self) -> Any:
        """Run the next step; see `may_step`.

        Returns the outcome if it finished, else itself.
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
        """Throw a cancellation into it, if no task awaits it."""
        try:
            self._coroutine.throw(error)
        except (StopIteration, type(error)):
            return
        self._coroutine.close()

    def cancel(self, error: CancelledError) -> None:
        """Cancel it as `Task.cancel` does; for a task that was cancelled before it took the coroutine over."""
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
                del step  # it may hold an error, which refers to this frame
            self.awaits_replication = type(waits_for) is ReplicationFuture
            if self.awaits_replication and self._on_replication_wait is not None:
                self._on_replication_wait()

    def _first_wait(self) -> Generator[Any, None, None]:
        cancelled, self._cancelled = self._cancelled, None
        must_yield = self.awaited is None or (self.awaited.done() and not self.may_step)
        waits_for, self.awaited = self.awaited, None
        try:
            if cancelled is not None:
                raise cancelled
            if must_yield:
                yield
            if waits_for is not None:
                yield from waits_for
        finally:
            del cancelled, waits_for


def start_eagerly(coroutine: Coroutine[Any, Any, Any], on_replication_wait: Callable[[], None] | None = None) -> Any:
    """Run the first step. Returns the outcome if the coroutine finished, else an `EagerCoroutine`."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration as done:
        return done.value
    return EagerCoroutine(coroutine, waits_for, on_replication_wait)
