"""A pool of connections to brokers, this one included: one connection per broker, opened on demand.

Invariant: concurrent callers for one broker share one connection. The pool reconnects when a broker's address changes
or its connection breaks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.clients.connection import Connection
from anabranch.protocol.connection import NODE_SOFTWARE
from anabranch.protocol.host_port import format_host_port

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.metadata.metadata_cache import MetadataCache


class PeerConnections:
    """Connections by broker id."""

    def __init__(self, settings: Callable[[], BrokerSettings], metadata: MetadataCache, *, name: str) -> None:
        """`name` and this broker's id form the client id that other brokers see."""
        self._settings = settings
        self._metadata = metadata
        self._name = name
        self._connections: dict[int, Connection] = {}
        self._connecting: dict[int, asyncio.Lock] = {}
        self._closed = False

    async def to(self, node: int) -> Connection:
        """Return the connection to a broker. Raises ConnectionError, TimeoutError, KafkaError."""
        async with self._connecting.setdefault(node, asyncio.Lock()):
            self._check_open()
            broker = self._metadata.broker(node)
            if broker is None:
                raise ConnectionError(f"broker {node} is not alive")
            connection = self._connections.get(node)
            if (
                connection is not None
                and not connection.closed
                and connection.peer == format_host_port(broker.host, broker.port)
            ):
                return connection
            if connection is not None:
                connection.abort("replaced by another connection")
            settings = self._settings()
            connection = await Connection.open(
                broker.host,
                broker.port,
                client_id=f"{self._name}-{settings.node_id}",
                request_timeout_ms=settings.request_timeout_ms,
                security=settings.security,
                software_name=NODE_SOFTWARE,
            )
            self._connections[node] = connection
            try:
                self._check_open()
            except ConnectionError:
                await self.close()
                raise
            return connection

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionError("the broker is stopping")

    async def close(self) -> None:
        """Close all connections, and refuse new ones."""
        self._closed = True
        while self._connections:
            await self._connections.popitem()[1].close()
