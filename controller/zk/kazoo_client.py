"""A kazoo client that lives for one session and calls back on the event loop: one of two modules that see a thread.

kazoo runs one connection thread per client and by default two more that deliver completions and watches, which lets
changed data overtake the news of the change. Here both are posted to the event loop from the connection thread, in the
order in which they arrived, so the order that ZooKeeper promises is kept and no further thread exists.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler


class WithoutContents(logging.Filter):
    """Keeps out of the log what kazoo tells there at level DEBUG: all that is sent, passwords and users' keys too."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may be told."""
        return not record.msg.startswith(CONTENTS)


CONTENTS: Final = ("Sending request", "Received response")
kazoo_log: Final = logging.getLogger("kazoo.client")
kazoo_log.addFilter(WithoutContents())


class PostingQueue:
    """Stands in for kazoo's completion queue: what is put there is called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, call: Callable[[], object]) -> None:
        """Post the call to the loop; drop it if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Delivers kazoo's completions and watches on the event loop, in the order in which ZooKeeper sent them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.completion_queue = PostingQueue(loop)

    @property
    def running(self) -> bool:
        """Always: a handler that is not running would call back from the connection thread."""
        return True

    def start(self) -> None:
        """Start no worker threads."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def dispatch_callback(self, callback: Any) -> None:
        """Post a watch's callback."""
        self.completion_queue.put(functools.partial(callback.func, *callback.args))


class OneSessionClient(KazooClient):  # type: ignore[misc]
    """A client that does not outlive its session."""

    def end_reconnecting(self) -> None:
        """Let the connection thread finish instead of opening the next session. Called on that thread, at expiry."""
        self._stopped.set()

    def stop(self) -> None:
        """End the session if it lives, and wait for the connection thread."""
        if self._stopped.is_set():
            self._safe_close()
        else:
            super().stop()
