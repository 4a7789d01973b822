"""Event loops for tests: an unhandled error on a loop fails the test.

A task that dies unobserved, one that is forgotten while it waits, or a callback that raises, is a bug even when every
assertion holds. A test that expects one of them gives its loop an exception handler of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import uvloop

from anabranch.clock.loop import ClockLoop

LOOKS: Final = 200
"""Of so many looks for garbage one goes through everything, the others through what is new."""
_looks = itertools.count(1)
_holds_back = False


def collect_garbage(*, everything: bool = False) -> None:
    """Collect new objects, and every 200th time all objects.

    A full collection at the end of a session takes 0.4 s, and there are more than a thousand collections. Objects that
    survive one are therefore left out of the next ones (`gc.freeze`) until the next full collection.
    """
    if everything or next(_looks) % LOOKS == 0:
        gc.unfreeze()
    gc.collect()
    if not _holds_back:
        gc.freeze()


@contextlib.contextmanager
def looked_at_again() -> Iterator[None]:
    """Let the first collection after the block include the objects of the block."""
    global _holds_back
    _holds_back = True
    try:
        yield
    finally:
        _holds_back = False


class Strict(asyncio.AbstractEventLoop):
    """A mixin for event loops: a call of the exception handler fails and cancels the running test."""

    def __init__(self) -> None:
        super().__init__()
        self._unhandled: list[BaseException | str] = []
        self._main: asyncio.Future[Any] | None = None
        self.set_exception_handler(_complain)

    def run_until_complete(self, future: Any) -> Any:
        """The future's result. Raises AssertionError if anything came to the exception handler.

        `asyncio.Runner` makes a task of what it is given to run, and runs its own cleaning up as bare coroutines.
        """
        self._main = asyncio.ensure_future(future, loop=self)
        result = None
        try:
            result = super().run_until_complete(self._main)
        except asyncio.CancelledError:
            if not self._unhandled:
                raise
        except BaseException:
            self._unhandled.clear()  # one failure is enough
            raise
        finally:
            self._main = None
        if isinstance(future, asyncio.Task):
            collect_garbage()  # a forgotten task complains when it is collected: let it do so while its loop listens
        if self._unhandled:
            unhandled, self._unhandled = self._unhandled, []
            cause = next((error for error in unhandled if isinstance(error, BaseException)), None)
            raise AssertionError(f"the loop saw what nobody handled: {unhandled}") from cause
        return result


def _complain(loop: Any, context: dict[str, Any]) -> None:
    told = context.get("task") or context.get("future") or ""
    loop._unhandled.append(context.get("exception") or f"{context['message']} {told}".rstrip())
    if loop._main is not None:
        loop._main.cancel()  # what it waits for may never come now


class StrictLoop(Strict, asyncio.SelectorEventLoop):
    """The default loop of tests."""


class HastyLoop(StrictLoop):
    """A loop whose timers fire slightly early, and whose handles have no `when`, like uvloop's."""

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        if when - self.time() < 0.001:
            return self.call_soon(callback, *args, context=context)
        return super().call_at(when - 0.002, callback, *args, context=context)


class StrictUvloop(Strict, uvloop.Loop):
    """uvloop."""


class StrictClockLoop(Strict, ClockLoop):
    """The loop of a cluster whose clock can be stopped and moved."""


LOOPS: Final[dict[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": StrictLoop,
    "hasty": HastyLoop,
    "uvloop": StrictUvloop,
    "clock": StrictClockLoop,
}
"""By the names that `pytest.mark.asyncio(loop_factories=[...])` takes."""
