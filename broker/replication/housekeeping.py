"""Work that comes back: small work at intervals, long work in steps with as much time for requests in between.

A disk that refuses is an outage to report and to live through; anything else is a bug and ends the task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


async def periodically(interval_ms: float, work: Callable[[], None]) -> None:
    """Do it at intervals, for ever."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            work()
        except OSError as error:
            log.error("%s has to wait for its next turn: %s", work.__name__, error)
        except Exception:
            log.exception("bug in %s", work.__name__)
            raise


async def in_steps(interval_ms: Callable[[], float], step: Callable[[], bool]) -> None:
    """Do long work in steps, with as much time for requests between two of them, until there is none; then pause."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(interval_ms() / 1000)
        try:
            began = loop.time()
            while step():
                await asyncio.sleep(loop.time() - began)
                began = loop.time()
        except OSError as error:
            log.error("housekeeping has to wait for its next turn: %s", error)
        except Exception:
            log.exception("bug in %s", step)
            raise
