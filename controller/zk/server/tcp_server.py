"""The built-in ZooKeeper on a port: it moves bytes between sockets and connections, and ends silent sessions.

Bytes are executed when the loop reads them, before timers that are due. So a process that was held for a while sees
what its clients have sent meanwhile before it ends a session. The server stops reading from a client that does not read
its responses. Its session expires at the timeout, and its connection ends soon after.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from anabranch.controller.zk.server.connection import ServerConnection
from anabranch.controller.zk.server.service import ZooKeeperService
from anabranch.controller.zk.tree import ZnodeTree
from anabranch.protocol.host_port import format_host_port

log = logging.getLogger(__name__)

TICK_S: Final = 0.5
"""How late a session may end."""
CONNECT_TIMEOUT_S: Final = 10.0
"""How long a connection may have no session (`zookeeper.nio.sessionlessCnxnTimeout`)."""
CLOSE_TIMEOUT_S: Final = 10.0
"""How long a client may take to read its last responses, before they are dropped."""


class ZooKeeperTcpServer:
    """A server from `start` to `stop`.

    Args:
        tree: The znodes.
    """

    def __init__(self, tree: ZnodeTree) -> None:
        self._loop = asyncio.get_running_loop()
        self._service = ZooKeeperService(
            tree,
            first_session_id=first_session_id(time.time_ns() // 1_000_000),
            clock=self._loop.time,
            wall_clock_ms=lambda: time.time_ns() // 1_000_000,
        )
        self._server: asyncio.Server | None = None
        self._peers: set[Peer] = set()
        self._tick: asyncio.TimerHandle | None = None
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self.port = 0

    async def start(self, host: str, port: int = 0) -> None:
        """Listen; port 0 takes a free one. Raises OSError."""
        self._server = await self._loop.create_server(lambda: Peer(self), host, port)
        self.port = self._server.sockets[0].getsockname()[1]
        self._expire()

    async def stop(self) -> None:
        """Stop listening, and close all connections."""
        if self._tick is not None:
            self._tick.cancel()
        if self._server is not None:
            self._server.close()
        for peer in tuple(self._peers):
            peer.abort()
        self._failed.cancel()

    async def wait_failed(self) -> None:
        """Wait until the server cannot keep its data any more, and raise the error."""
        await asyncio.shield(self._failed)

    def connect(self, peer: Peer, client: str, transport: asyncio.Transport) -> ServerConnection:
        """Create the connection of a peer."""
        self._peers.add(peer)
        return ServerConnection(self._service, client, transport.write, peer.close)

    def forget(self, peer: Peer) -> None:
        """Forget a peer whose connection is lost."""
        self._peers.discard(peer)

    def fail(self, error: OSError) -> None:
        """End the server at once: a write is in its memory, and not in its file."""
        for peer in self._peers:
            peer.abort()
        if self._server is not None:
            self._server.close()
        if not self._failed.done():
            self._failed.set_exception(error)

    def _expire(self) -> None:
        try:
            self._service.expire_sessions()
        except OSError as error:
            self.fail(error)
        self._tick = self._loop.call_later(TICK_S, self._expire)


class Peer(asyncio.Protocol):
    """The socket of one connection."""

    def __init__(self, server: ZooKeeperTcpServer) -> None:
        self._server = server
        self._closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the connect request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        client = transport.get_extra_info("peername")  # None if the client is gone already
        self._client = format_host_port(client[0], client[1]) if client else "a client"
        self._connection = self._server.connect(self, self._client, transport)
        self._impatience = asyncio.get_running_loop().call_later(CONNECT_TIMEOUT_S, self._close_without_session)

    def data_received(self, data: bytes) -> None:
        """Execute every complete request. A bug ends this connection, and no other."""
        try:
            self._connection.receive(data)
        except OSError as error:
            self._server.fail(error)
        except Exception:
            log.exception("a request of a ZooKeeper client failed")
            self._connection.close("a request failed, see above")

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop its watches; its session waits for another connection."""
        self._impatience.cancel()
        if self._closing is not None:
            self._closing.cancel()
        self._connection.lost()
        self._server.forget(self)

    def pause_writing(self) -> None:
        """Execute nothing for a client that does not read."""
        self._connection.paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Execute what has waited, and read again."""
        self._connection.paused = False
        self.data_received(b"")
        if not self._connection.paused:
            self._transport.resume_reading()

    def close(self) -> None:
        """Close the connection when all is sent, or after a while."""
        self._transport.close()
        self._closing = asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, self._give_up)

    def abort(self) -> None:
        """Reset the connection."""
        self._transport.abort()

    def _give_up(self) -> None:
        log.warning("reset the ZooKeeper connection of %s: it does not read its responses", self._client)
        self.abort()

    def _close_without_session(self) -> None:
        if self._connection.session is None:
            self._connection.close(f"it sent no connect request within {CONNECT_TIMEOUT_S:g} s")


def first_session_id(now_ms: int) -> int:
    """Return the first id of a process's sessions: later processes have higher ones (`SessionTrackerImpl`)."""
    return ((now_ms << 24) & ((1 << 64) - 1)) >> 8
