"""Reads znodes again after each watch event of a ZooKeeper session.

No event is lost: one that arrives during a read causes another read. Errors of ZooKeeper are retried. The watch ends
when its session expires; the node opens a new session and starts the watch again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from anabranch.broker.tasks.supervised_task import OnFailure, supervised_task
from anabranch.controller.zk.session import SessionExpired, ZkError

log: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.5


class ZnodeWatch:
    """A task that calls `read` after each call of `on_change`."""

    def __init__(self, what: str, task: str, read: Callable[[], Awaitable[None]]) -> None:
        """`what`: the name of the content, for the log. `task`: the task's name. `read` watches the znodes again."""
        self._what = what
        self._task_name = task
        self._read = read
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def on_change(self, _event: object = None) -> None:
        """Read again; the callback of ZooKeeper's watches."""
        self._changed.set()

    def start(self, on_failure: OnFailure) -> None:
        """Start the task; `on_failure` is called if `read` has a bug."""
        self._task = supervised_task(self._run(), self._task_name, on_failure)

    async def stop(self) -> None:
        """Stop the task, and forget earlier events."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._changed.clear()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._read()
            except SessionExpired:
                return
            except ZkError as error:
                log.warning("%s: reading again in %g s: %s", self._what, RETRY_S, error)
                await asyncio.sleep(RETRY_S)
                self._changed.set()
