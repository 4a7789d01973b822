"""Runs the long-running commands: logs on stderr, a clean stop on SIGINT and SIGTERM, a task dump on SIGQUIT."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import FrameType
from typing import Any, Final

from anabranch.runtime.heap_trimming import keep_trimming
from anabranch.runtime.logging_setup import configure_logs
from anabranch.runtime.open_files import AcceptFailures, raise_limit
from anabranch.runtime.task_dump import log_task_dump

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
FROZEN_GENERATION: Final = 1 if sys.version_info < (3, 14) else 2
"""Survivors of this generation's collections are frozen. Python 3.14 collects old objects in small increments."""
YOUNG_OBJECTS: Final = (700, 10)
"""The thresholds of generations 0 and 1: one collection visits at most some 8,000 objects, which takes 1 to 5 ms."""
TRIM_FROM_S: Final = 1.0
"""How long after the command's start memory is first trimmed: the nodes should be up."""


def run(
    main: Callable[[], Coroutine[Any, Any, None]],
    *,
    log_level: str = "warning",
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Run a command's coroutine, on asyncio's loop or another one."""
    configure_logs(log_level)
    raise_limit()
    with freezing_survivors(), asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        loop.set_exception_handler(AcceptFailures())
        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGQUIT, _tell_waits, loop)
        loop.call_later(TRIM_FROM_S, keep_trimming, loop)
        with contextlib.suppress(StoppedEarly):
            runner.run(main())


@contextlib.contextmanager
def freezing_survivors() -> Iterator[None]:
    """Exclude objects that survived two garbage collections from later ones: see `heap_trimming`."""

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] >= FROZEN_GENERATION:
            gc.freeze()

    before = gc.get_threshold()
    if FROZEN_GENERATION == 1:
        gc.set_threshold(*YOUNG_OBJECTS)
    gc.callbacks.append(on_collection)
    try:
        yield
    finally:
        gc.callbacks.remove(on_collection)
        gc.set_threshold(*before)


def _tell_waits(loop: asyncio.AbstractEventLoop) -> None:
    log_task_dump(loop)


def postpone_collection() -> None:
    """Disable garbage collection until `freeze_memory`: objects of the start live as long as the process."""
    gc.disable()


def resume_collection() -> None:
    """Enable garbage collection again after a failed start or the end of a cluster: the process may continue."""
    gc.enable()


def freeze_memory() -> None:
    """Enable garbage collection, except for the objects that exist now: they live as long as the process."""
    gc.freeze()
    gc.enable()


@contextlib.contextmanager
def handling(number: signal.Signals, handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle a signal while the block runs, then restore the previous handler."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


class StoppedEarly(Exception):
    """A signal came while the command was starting."""


class StopSignal:
    """Waits for SIGINT and SIGTERM. Signals count from its construction on: create it before the ready line."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop_requested: asyncio.Future[None] = self._loop.create_future()
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._request_stop)

    async def wait(self, *others: Awaitable[None]) -> None:
        """Wait for a signal, or until one of the others ends, and raise its exception."""
        waiting: list[asyncio.Future[None]] = [asyncio.ensure_future(other) for other in others]
        done, _ = await asyncio.wait([self._stop_requested, *waiting], return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()
        for one in done:
            one.result()

    @contextlib.contextmanager
    def ending_start(self) -> Iterator[None]:
        """Cancel the block in the current task at a signal. Raises StoppedEarly then."""
        task = asyncio.current_task()
        assert task is not None, "a start runs in a task"

        def cancel(_: asyncio.Future[None]) -> None:
            task.cancel()

        self._stop_requested.add_done_callback(cancel)
        try:
            yield
        except asyncio.CancelledError:
            if self._stop_requested.done() and not task.uncancel():
                raise StoppedEarly from None
            raise
        finally:
            self._stop_requested.remove_done_callback(cancel)

    def _request_stop(self) -> None:
        if not self._stop_requested.done():
            self._stop_requested.set_result(None)
