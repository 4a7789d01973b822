"""How every long-running command runs: the fastest loop there is, log lines on stderr, a clean stop on SIGINT and
SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def run(main: Callable[[], Coroutine[Any, Any, None]], *, log_level: str = "warning") -> None:
    """Run a command's coroutine on uvloop if it is installed, on asyncio's own loop otherwise."""
    logging.basicConfig(
        stream=sys.stderr, level=log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    with asyncio.Runner(loop_factory=fast_loop) as runner:
        runner.run(main())


def fast_loop() -> asyncio.AbstractEventLoop:
    """A new event loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def settle_memory() -> None:
    """Take everything that start-up made out of the garbage collector's sight: it lives as long as the process."""
    gc.collect()
    gc.freeze()


async def until_told_to_stop(*others: Awaitable[None]) -> None:
    """Wait for SIGINT or SIGTERM, or until one of the others ends, whose exception is then raised."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        with contextlib.suppress(asyncio.InvalidStateError):
            told.set_result(None)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        waiting = [asyncio.ensure_future(other) for other in others]
        done, _ = await asyncio.wait([told, *waiting], return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
