"""The connections of one client: one per node and channel, opened at the first request, reopened with backoff.

Callers share an ongoing connection attempt to a node. A moved node gets a new connection; a node that is missing from
metadata keeps its open one, because a broker's metadata may lag behind. `listeners` are called at the end of each
attempt, and when another one may start; `on_failure`, when an attempt has failed and the metadata should be refreshed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, Final, TypeVar

from anabranch.clients.config import NetworkConfig
from anabranch.clients.connection import Connection
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.host_port import format_host_port

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Address = tuple[str, int]

DATA: Final = 0
GROUP: Final = 1
POSITIONS: Final = 2
JOIN: Final = 3
POSITION_CHANNELS: Final = (POSITIONS, 4, 5)
MORE_DATA: Final = 6
"""Channels: connections to the same node that do not block each other."""
BACKOFF: Final = 8
"""Number of failed attempts before a node is reported as unreachable: two and a half seconds with backoff."""


class PooledConnection:
    """The connection to one node, or the attempt to open it."""

    __slots__ = ("address", "attempt", "channel", "connection", "failures", "retry_at", "trouble")

    def __init__(self, address: Address, channel: int) -> None:
        self.address = address
        self.channel = channel
        self.connection: Connection | None = None
        self.attempt: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.retry_at = 0.0
        self.trouble = ""
        """Why the last attempt failed."""

    @property
    def open(self) -> Connection | None:
        """Return the connection if it is usable."""
        return None if self.connection is None or self.connection.closed else self.connection


class ConnectionPool:
    """All connections of one client. `address_of` returns a node's address, None for an unknown node."""

    def __init__(
        self,
        config: NetworkConfig,
        rng: random.Random,
        *,
        address_of: Callable[[int], Address | None],
        on_failure: Callable[[], None],
    ) -> None:
        self.closed = False
        self.listeners: list[Callable[[int], None]] = []
        self._config = config
        self._rng = rng
        self._address_of = address_of
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._by_node: dict[tuple[int, int], PooledConnection] = {}
        self._reported: set[int] = set()
        """Nodes that were reported as unreachable."""
        self.silent: set[int] = set()
        """Nodes that did not answer in time, and nothing since: perhaps frozen, with open connections."""

    def ready(self, node_id: int, channel: int) -> Connection | None:
        """Return the open connection to a node; None while an attempt is in progress or backed off."""
        link = self._link(node_id, channel)
        if link is None or self.closed:
            return None
        connection = link.open
        if connection is None and link.attempt is None and self._loop.time() >= link.retry_at:
            self._connect(node_id, link)
        return connection

    def last_error(self, node_id: int, channel: int) -> str:
        """Return why the last attempt to reach a node failed; empty if it did not."""
        link = self._by_node.get((node_id, channel))
        if link is None or link.open is not None or not link.failures:
            return ""
        return f"node {node_id} cannot be reached: {link.trouble}"

    async def connection(self, node_id: int, channel: int) -> Connection:
        """Connect to a node. Raises `ConnectionError` if it cannot be reached now."""
        while True:
            link = self._link(node_id, channel)
            if link is None:
                raise ConnectionError(f"node {node_id} is not in the metadata")
            if self.closed:
                raise ConnectionError("the client is closed")
            connection = link.open
            if connection is not None:
                return connection
            wait_s = link.retry_at - self._loop.time()
            if link.attempt is not None or wait_s <= 0:
                break
            await asyncio.sleep(wait_s)
        if link.attempt is None:
            self._connect(node_id, link)
        assert link.attempt is not None, "an attempt was started"
        return await self.outcome(link.attempt)

    async def outcome(self, task: asyncio.Task[Result]) -> Result:
        """Wait for a shared task. When `close` ends it, its callers get a ConnectionError, not a cancellation."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self.closed and task.cancelled():
                raise ConnectionError("the client is closed") from None
            raise

    async def open(self, address: Address) -> Connection:
        """Open a connection that only the caller uses."""
        return await Connection.open(
            *address,
            client_id=self._config.client_id,
            request_timeout_ms=self._config.request_timeout_ms,
            connect_timeout_ms=self._config.connect_timeout_ms,
            security=self._config.security,
        )

    def preference(self, node_id: int, *, doubted: bool = False) -> tuple[bool, bool, bool, bool, float]:
        """Return a sort key for nodes: open connections first, a doubted node behind others that may be reached, recent
        failures and silent nodes last.
        """
        link, silent = self._by_node.get((node_id, DATA)), node_id in self.silent
        if link is None:
            return silent, False, doubted, True, 0.0
        is_open = link.open is not None
        return silent, not is_open and link.failures > 0, doubted, not is_open, link.retry_at

    def prune(self) -> None:
        """Forget removed nodes. An open connection to one still serves its users."""
        for key, link in list(self._by_node.items()):
            if self._address_of(key[0]) is None and link.attempt is None and link.open is None:
                del self._by_node[key]

    async def close(self) -> None:
        """Cancel pending attempts, and close open connections."""
        self.closed = True
        attempts: list[asyncio.Task[Any]] = [one.attempt for one in self._by_node.values() if one.attempt is not None]
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        links, self._by_node = self._by_node, {}
        for link in links.values():
            if link.connection is not None:
                await link.connection.close()

    def _link(self, node_id: int, channel: int) -> PooledConnection | None:
        address = self._address_of(node_id)
        link = self._by_node.get((node_id, channel))
        if address is None:
            return link if link is not None and link.open is not None else None
        if link is not None and link.address == address:
            return link
        if link is not None and link.connection is not None:
            link.connection.abort(f"node {node_id} moved to {format_host_port(*address)}")
        link = self._by_node[node_id, channel] = PooledConnection(address, channel)
        return link

    def _connect(self, node_id: int, link: PooledConnection) -> None:
        task = link.attempt = self._loop.create_task(self.open(link.address), name=f"connect to node {node_id}")
        task.add_done_callback(lambda done: self._on_connected(node_id, link, done))

    def _on_connected(self, node_id: int, link: PooledConnection, task: asyncio.Task[Connection]) -> None:
        link.attempt = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            if self.closed or self._by_node.get((node_id, link.channel)) is not link:
                task.result().abort("no longer wanted")
                return
            link.connection = task.result()
            link.failures = 0
            self._reported.discard(node_id)
        else:
            link.failures += 1
            link.trouble = str(error)
            wait_ms = self._config.retry_backoff.wait_ms(link.failures, self._rng)
            link.retry_at = self._loop.time() + wait_ms / 1000
            expected = isinstance(error, ConnectionError | TimeoutError | KafkaError)
            log.log(logging.DEBUG if expected else logging.ERROR, "node %d: %s", node_id, error)
            if link.failures == BACKOFF and expected and node_id not in self._reported:
                self._reported.add(node_id)
                log.warning("%s; retrying", self.last_error(node_id, link.channel))
            self._on_failure()
            self._loop.call_at(link.retry_at, self._is_backed_off, node_id, link, link.retry_at)
        self._notify(node_id)

    def _is_backed_off(self, node_id: int, link: PooledConnection, retry_at: float) -> None:
        """End the pause after a failed attempt: call the listeners.

        The timer decides its end; reading the clock again could show a fraction of a millisecond less: a listener that
        may not connect yet would never be called again.
        """
        if link.retry_at == retry_at:
            link.retry_at = min(retry_at, self._loop.time())
        self._notify(node_id)

    def _notify(self, node_id: int) -> None:
        for listener in self.listeners:
            listener(node_id)
