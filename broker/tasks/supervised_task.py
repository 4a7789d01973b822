"""Background tasks of a node; an unexpected end of one stops the node.

Otherwise its work would stop silently: a leader is not followed, no ISR shrinks, no configuration is applied. A partly
failed node blocks its peers, so the whole node stops: its process ends with the traceback, and a supervisor can restart
it. Kafka's threads do the same after unexpected errors (`ShutdownableThread`, `FatalExitError`), except its fetchers,
which drop a partition and continue. Errors of a disk, a peer or ZooKeeper are expected: the tasks handle them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

log = logging.getLogger(__name__)


class FatalNodeError(Exception):
    """Raised when a task of the node ended with a bug, its `__cause__`."""


OnFailure = Callable[[FatalNodeError], None]


def supervised_task(coroutine: Coroutine[Any, Any, None], name: str, on_failure: OnFailure) -> asyncio.Task[None]:
    """Start a task that ends when it is cancelled or finished; after any other end `on_failure` is called."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(partial(_on_done, on_failure))
    return task


def log_failure(bug: FatalNodeError) -> None:
    """Log a bug, for callers without a node to stop."""


def _on_done(died: OnFailure, task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, Exception):
        log.error("bug in %s", task.get_name(), exc_info=error)
        bug = FatalNodeError(f"{task.get_name()} has a bug: {error!r}")
        bug.__cause__ = error
        died(bug)
