"""Tasks that last as long as their node: the node is told when one ends by a bug.

The task's work is not done from then on: a leader is not followed, no ISR shrinks, no configuration is applied; and
nothing else would show it. Half a node is worse than none, for others wait for it. So the node gives up, its process
ends with the traceback, and whatever watches over processes begins a new one. Kafka's threads do the same with what
they did not expect (`ShutdownableThread`, `FatalExitError`), except for its fetchers, which leave out a partition and
go on.

A refusal from outside (a disk, a peer, ZooKeeper) is no bug: the tasks live through those.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

log = logging.getLogger(__name__)


class FatalNodeError(Exception):
    """The node cannot go on: one of its tasks has ended by the bug that is the cause of this."""


OnFailure = Callable[[FatalNodeError], None]


def supervised_task(coroutine: Coroutine[Any, Any, None], name: str, on_failure: OnFailure) -> asyncio.Task[None]:
    """Start a task that ends when it is cancelled or has nothing left to do. After any other end `died` is called."""
    task = asyncio.get_running_loop().create_task(coroutine, name=name)
    task.add_done_callback(partial(_ended, on_failure))
    return task


def log_failure(bug: FatalNodeError) -> None:
    """Log a bug, where there is no node that could end because of it."""


def _ended(died: OnFailure, task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if isinstance(error, Exception):
        log.error("bug in %s", task.get_name(), exc_info=error)
        bug = FatalNodeError(f"{task.get_name()} has a bug: {error!r}")
        bug.__cause__ = error
        died(bug)
