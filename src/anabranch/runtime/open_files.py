"""The process's limit of open files: raised to the maximum, and reported in one line when it is reached.

asyncio would log each connection that it cannot accept with a traceback, hundreds of times a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
from typing import Any, Final

log: Final = logging.getLogger(__name__)

LIMIT_MAX: Final = 1 << 20
"""Linux's maximum, where no limit is set."""
AGAIN_AFTER_S: Final = 30.0
NOT_ACCEPTED: Final = "socket.accept() out of system resource"
STOPPED_MEANWHILE: Final = "_start_serving"
"""The asyncio function that fails when it resumes listening on a socket that was closed meanwhile."""


def raise_limit() -> None:
    """Raise the limit of open files to the process's hard limit, as a JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = LIMIT_MAX if hard == resource.RLIM_INFINITY else min(hard, LIMIT_MAX)
    if soft != resource.RLIM_INFINITY and soft < target:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


class AcceptFailures:
    """An exception handler for loops with listening sockets."""

    def __init__(self) -> None:
        self._quiet_until_s = float("-inf")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log connections that cannot be accepted at intervals; leave everything else to asyncio."""
        message, error = context.get("message", ""), context.get("exception")
        if isinstance(error, ValueError) and STOPPED_MEANWHILE in message:
            return
        if message != NOT_ACCEPTED:
            loop.default_exception_handler(context)
        elif loop.time() >= self._quiet_until_s:
            self._quiet_until_s = loop.time() + AGAIN_AFTER_S
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            log.error(
                "connections wait: %s (`ulimit -n` is %d); raise it, or close connections of clients", error, limit
            )
