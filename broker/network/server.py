"""The listeners of a node: they accept connections up to a limit, close idle ones, and drain at the stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.listeners import (
    CREATION_RATE,
    MAX_CONNECTIONS,
    address_bounds,
    canonical,
    listener_limits,
)
from anabranch.broker.network.connection import BrokerConnection
from anabranch.broker.network.turn_writer import TurnWriter
from anabranch.broker.quotas.connection_quotas import UNLIMITED, AdmissionQueue, ConnectionQuotas
from anabranch.broker.quotas.request_memory import RequestMemory

if TYPE_CHECKING:
    from anabranch.broker.authentication.listener_security import ListenerSecurity
    from anabranch.broker.authorization.peer import Peer
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.config.listeners import Listener
    from anabranch.broker.dispatch.dispatcher import Dispatcher

log: Final = logging.getLogger(__name__)

BACKLOG: Final = 512


class Server:
    """Listens on the addresses of a node."""

    def __init__(
        self,
        settings: BrokerSettings,
        dispatcher: Dispatcher,
        protections: Mapping[str, ListenerSecurity] | None = None,
        *,
        is_open: bool = True,
    ) -> None:
        """`protections`: listener -> its TLS and authentication; nothing of those it does not name.

        Unless it is open, connections are accepted and wait for `open`.
        """
        self.dispatcher = dispatcher
        self._is_open = is_open
        self._protections = protections or {}
        self.frame_bytes_max = settings.socket_request_max_bytes
        self.entries_max = settings.max_request_partition_size_limit
        self.request_memory = RequestMemory(settings.queued_max_request_bytes)
        self.response_memory = dispatcher.response_memory
        self.buffered_bytes_max = 1 << 20
        """Bytes that may wait unprocessed before reading pauses; a frame in the making may exceed it."""
        self.ports = {one.name: one.port for one in settings.listening}
        """Listener -> port."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.loop: asyncio.AbstractEventLoop
        self.turn_writer: TurnWriter
        self._listening = settings.listening
        self._idle_s = settings.connections_max_idle_ms / 1000
        self._connections_max = settings.max_connections
        self._address_max = settings.max_connections_per_ip
        self._address_bounds = address_bounds(settings.max_connections_per_ip_overrides)
        self._connections: dict[BrokerConnection, None] = {}  # in the order of their arrival
        self._acceptors: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._refusing = False
        self._stopping = False
        self._protected = settings.inter_broker_listener if len(settings.listening) > 1 else ""
        """The listener whose connections the broker's limits do not keep out (KIP-402)."""
        self.connection_quotas = ConnectionQuotas(
            window_ms=settings.quota_window_size_seconds * 1000,
            samples=settings.quota_window_num,
            per_second=settings.max_connection_creation_rate,
            exempt=self._protected,
        )
        self._listener_max: dict[str, int] = {}
        self.set_listener_limits(settings.given)
        self._entrances: dict[str, AdmissionQueue] = {}
        """Listener -> its queue: those of other listeners do not wait for a connection."""
        self.on_gone: Callable[[Peer], None] = lambda _peer: None
        """Called for each client whose connection has ended."""

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.ports.values()))

    @property
    def connection_count(self) -> int:
        """Return the number of connections, including those whose peer has gone while a request is processed."""
        return len(self._connections)

    @property
    def connections(self) -> tuple[BrokerConnection, ...]:
        """Return all connections, in the order of their arrival."""
        return tuple(self._connections)

    @property
    def peers(self) -> tuple[Peer, ...]:
        """Return the peers of open connections."""
        return tuple(one.peer for one in self._connections)

    async def start(self) -> None:
        """Start listening; for port 0 the system chooses, and `ports` has the choice."""
        self.loop = asyncio.get_running_loop()
        self.turn_writer = TurnWriter(self.loop)
        self._entrances = {
            one.name: AdmissionQueue(self.connection_quotas, is_open=self._is_open) for one in self._listening
        }
        try:
            for listener in self._listening:
                await self._accept(listener)
        except BaseException:
            for acceptor in self._acceptors:
                acceptor.close()
            raise
        self._schedule_sweep()

    def open(self) -> None:
        """Serve connections, including those that already wait."""
        for entrance in self._entrances.values():
            entrance.open()

    async def _accept(self, listener: Listener) -> None:
        protection = self._protections.get(listener.name)
        acceptor = await self.loop.create_server(
            lambda: BrokerConnection(self, listener, protection),
            listener.host,
            listener.port,
            backlog=BACKLOG,
            start_serving=False,  # else `create_server` yields at its end, and a cancellation there loses the socket
        )
        self._acceptors.append(acceptor)
        self.ports[listener.name] = acceptor.sockets[0].getsockname()[1]
        await acceptor.start_serving()

    async def stop(self, *, drain_s: float = 0.5) -> None:
        """Stop listening, give running requests a moment to finish, then close every connection."""
        self._stopping = True
        if self._sweep is not None:
            self._sweep.cancel()
        for acceptor in self._acceptors:
            await self._stop_listening(acceptor)
        for entrance in self._entrances.values():
            entrance.close()
        draining = [task for connection in list(self._connections) if (task := connection.drain()) is not None]
        if draining:
            await asyncio.wait(draining, timeout=drain_s)
        for connection in list(self._connections):
            await connection.stop()
        self.response_memory.close()

    async def _stop_listening(self, acceptor: asyncio.Server) -> None:
        """Stop accepting, let accepted sockets get their transports, and only then close.

        An asyncio listener that closes in between loses the connection without closing it (CPython's issue 109564).
        `admit` refuses these connections.
        """
        were_read = [self.loop.remove_reader(one) for one in acceptor.sockets]
        if any(were_read):
            await asyncio.sleep(0)
        acceptor.close()

    def admit(self, connection: BrokerConnection) -> bool:
        """Admit a new connection, and serve it as soon as possible; refuse it if the node is full or stops."""
        if self._stopping:
            return False
        full = self._full_for(connection.peer.host, connection.listener_name)
        if full:
            if not self._refusing:
                log.warning("refusing %s: %s", connection.peer, full)
            self._refusing = True
            return False
        self._refusing = False
        if len(self._connections) >= self._connections_max:
            self._close_least_recently_used()
        self._connections[connection] = None
        self._entrances[connection.listener_name].enter(connection)
        return True

    def _close_least_recently_used(self) -> None:
        """Close a connection of another listener than the protected one, whose new connection takes its place."""
        others = [one for one in self._connections if one.listener_name != self._protected]
        if others:
            oldest = min(others, key=lambda one: (one.busy, one.idle_since_s))
            log.warning("closing %s for a connection between brokers: the node is full", oldest.peer)
            oldest.abort()

    def _full_for(self, address: str, listener: str) -> str:
        """Return the reason why a listener accepts no connection from this address; empty if it does."""
        if len(self._connections) >= self._connections_max and listener != self._protected:
            return f"{len(self._connections)} connections are open"
        most = self._listener_max.get(listener, UNLIMITED)
        if most < UNLIMITED and sum(one.listener_name == listener for one in self._connections) >= most:
            return f"{listener} has {most} connections"
        if self._address_max < UNLIMITED or self._address_bounds:
            ip = canonical(address)
            bound = self._address_bounds.get(ip, self._address_max)
            if bound < UNLIMITED and sum(canonical(one.peer.host) == ip for one in self._connections) >= bound:
                return f"{ip} has {bound} connections"
        return ""

    def add_connection(self, settings: BrokerSettings) -> None:
        """Apply changed settings; connections beyond a new bound stay."""
        self._connections_max = settings.max_connections
        self._address_max = settings.max_connections_per_ip
        self._address_bounds = address_bounds(settings.max_connections_per_ip_overrides)
        self.connection_quotas.per_second = settings.max_connection_creation_rate

    def set_listener_limits(self, properties: Mapping[str, str]) -> None:
        """Apply the limits of single listeners; connections beyond a new bound stay."""
        self._listener_max = listener_limits(properties, MAX_CONNECTIONS)
        self.connection_quotas.listener_limits = listener_limits(properties, CREATION_RATE)

    def remove_connection(self, connection: BrokerConnection) -> None:
        """Unregister a connection that has ended."""
        self._connections.pop(connection, None)
        self.request_memory.forget(connection)
        self.on_gone(connection.peer)

    def _schedule_sweep(self) -> None:
        self._sweep = self.loop.call_later(max(self._idle_s / 4, 0.05), self._close_idle)

    def _close_idle(self) -> None:
        oldest_s = self.loop.time() - self._idle_s
        for connection in list(self._connections):
            if connection.idle_since_s >= oldest_s or connection.busy or connection.held_response_bytes:
                continue
            log.debug("closing %s: idle", connection.peer)
            if connection.unsent_bytes:
                connection.abort()  # `close` would wait for a peer that does not read
            else:
                connection.close()
        self._schedule_sweep()
