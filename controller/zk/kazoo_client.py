"""A kazoo client of one session with callbacks on the event loop: one of two modules that use threads.

kazoo runs one connection thread per client and by default two more for completions and watches, by which changed data
can overtake its watch. Here the connection thread posts both to the event loop, in the order of arrival, which keeps
ZooKeeper's guarantee without further threads.
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
from kazoo.protocol.connection import ConnectionHandler


class WithoutContents(logging.Filter):
    """Drops kazoo's DEBUG log of requests, which include passwords and users' keys."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record."""
        return not record.msg.startswith(CONTENTS)


CONTENTS: Final = ("Sending request", "Received response")
RECONNECTS_A_SESSION: Final = 4
RECONNECT_TIMEOUT_MIN_S: Final = 1.0
kazoo_log: Final = logging.getLogger("kazoo.client")
kazoo_log.addFilter(WithoutContents())


class PostingQueue:
    """Replaces kazoo's completion queue: its items are called on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def put(self, call: Callable[[], object]) -> None:
        """Post the call to the loop; drop it if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Delivers kazoo's completions and watches on the event loop, in ZooKeeper's order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.completion_queue = PostingQueue(loop)

    @property
    def running(self) -> bool:
        """Return True: a stopped handler would call back from the connection thread."""
        return True

    def start(self) -> None:
        """Start no worker threads."""

    def stop(self) -> None:
        """Do nothing."""

    def dispatch_callback(self, callback: Any) -> None:
        """Post a watch's callback."""
        self.completion_queue.put(functools.partial(callback.func, *callback.args))


class BoundedReconnects(ConnectionHandler):  # type: ignore[misc]
    """Leaves a server that accepts the connection of a living session but does not respond, before the session ends.

    kazoo waits for its response as long as the session lasts, divided by the number of servers.
    """

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if self.client._session_id:
            timeout = min(timeout, max(timeout / RECONNECTS_A_SESSION, RECONNECT_TIMEOUT_MIN_S))
        return super()._invoke(timeout, request, xid)


class OneSessionClient(KazooClient):  # type: ignore[misc]
    """A client that ends with its session."""

    def __init__(self, *, sasl_options: dict[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(sasl_options=sasl_options, **kwargs)
        retry = self._conn_retry.copy()
        self._connection = BoundedReconnects(self, retry, logger=self.logger, sasl_options=sasl_options)

    def end_reconnecting(self) -> None:
        """End the connection thread instead of opening the next session. Called on that thread, at expiry."""
        self._stopped.set()

    def stop(self) -> None:
        """End a live session, and wait for the connection thread."""
        if self._stopped.is_set():
            self._safe_close()
        else:
            super().stop()
