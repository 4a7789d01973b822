"""Takes the first step of a request's work where the bytes arrive, and the next ones where its waits end.

Most requests are answered without a wait. To wake a task for each of them takes a future and a turn of the loop: three
to four microseconds, a tenth of what a small request costs. A task may await what is left of the work at any time.

Work that has come so far that it only waits for its effect to be safe says so by what it waits for, a `Settling`:
requests behind it on its connection may begin.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.broker.settling import Settling

if TYPE_CHECKING:
    from asyncio import CancelledError


class Begun:
    """A coroutine that has come to wait for something; it is awaited once."""

    __slots__ = ("_cancelled", "_settling", "_work", "settles", "waits_for")

    def __init__(
        self, work: Coroutine[Any, Any, Any], waits_for: Any, settling: Callable[[], None] | None = None
    ) -> None:
        """`waits_for` is what the coroutine's first step has yielded: a future, or None for a turn of the loop.

        `settling` is called if it comes to wait for its effect to be safe while it is awaited.
        """
        self._work = work
        self._cancelled: CancelledError | None = None
        self._settling = settling
        self._come_to_wait_for(waits_for)

    def _come_to_wait_for(self, waits_for: Any) -> None:
        self.waits_for = waits_for
        """A future, unless it only waits for a turn of the loop or is awaited by now."""
        if waits_for is not None:
            waits_for._asyncio_future_blocking = False  # what a task does at once: so that others can wait for it, too
        self.settles = type(waits_for) is Settling
        """Whether it waits for nothing but its effect to be safe."""

    @property
    def may_wait(self) -> bool:
        """Whether it may take turns of the loop until it is done."""
        return not self.settles or self.waits_for is None or not self.waits_for.done()

    def go_on(self) -> Any:
        """Take the next step, if nobody awaits it: the future that it waits for is done.

        Returns the outcome if there is one by then, else itself.
        """
        self.waits_for = None
        try:
            waits_for = self._work.send(None)
        except StopIteration as done:
            return done.value
        self._come_to_wait_for(waits_for)
        if self.settles and self._settling is not None:
            self._settling()
        return self

    def give_up(self, error: CancelledError) -> None:
        """End it as a cancelled task would, if nobody awaits it."""
        try:
            self._work.throw(error)
        except (StopIteration, type(error)):
            return
        self._work.close()

    def cancel(self, error: CancelledError) -> None:
        """Do what `Task.cancel` does to work that waits: its task was cancelled before it took this over."""
        if self.waits_for is None or not self.waits_for.cancel():
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
                waits_for = step()
                wait = (waits_for,)
            except StopIteration as done:
                return done.value
            finally:
                del step  # it may hold an error, and that one this frame
            self.settles = type(waits_for) is Settling
            if self.settles and self._settling is not None:
                self._settling()

    def _first_wait(self) -> Generator[Any, None, None]:
        """Wait as the task that goes on with the work."""
        cancelled, self._cancelled = self._cancelled, None
        waits_for, self.waits_for = self.waits_for, None
        try:
            if cancelled is not None:
                raise cancelled
            if waits_for is None:
                yield
            else:
                yield from waits_for
        finally:
            del cancelled, waits_for


def begin(work: Coroutine[Any, Any, Any], settling: Callable[[], None] | None = None) -> Any:
    """Take the first step. Returns the outcome if there is one by then, else what is `Begun`."""
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        return done.value
    return Begun(work, waits_for, settling)
