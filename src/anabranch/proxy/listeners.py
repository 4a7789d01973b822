"""The listeners of a proxy: one port for each upstream broker, and one for each bootstrap address.

A broker gets its port when a response first names it, and keeps the port when its address changes. A bootstrap address
that is a broker's shares the broker's port. A failing upstream is logged once, and so is its recovery.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from anabranch.broker.authentication.listener_security import HandshakeFailed, tls_handshake
from anabranch.broker.dispatch.dispatcher import Dispatcher
from anabranch.broker.dispatch.request_context import AuthenticationFailed
from anabranch.broker.quotas.request_memory import RequestMemory
from anabranch.faults.dispatcher import FaultInjectingDispatcher
from anabranch.faults.matching import NodeContext
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.host_port import format_host_port
from anabranch.proxy.addresses import addresses_in, distinct, names_brokers, replace, surely_names_none
from anabranch.proxy.advertised_versions import LAST, cap_versions, unsupported_version_response
from anabranch.proxy.connection import ProxiedConnection
from anabranch.proxy.connection_side import ConnectionSide
from anabranch.proxy.conversation import Handling
from anabranch.proxy.request_header import RequestHeader
from anabranch.proxy.upstream_dispatcher import UpstreamDispatcher
from anabranch.runtime.sockets import family_of

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.proxy.settings import ProxySettings
    from anabranch.proxy.topic_names import TopicNames
    from anabranch.proxy.upstream_dispatcher import UpstreamPort

log: Final = logging.getLogger(__name__)

API_VERSIONS: Final = 18
METADATA: Final = 3
SASL_HANDSHAKE: Final = 17
FETCH: Final = 1
CONNECT_S: Final = 10.0
BACKLOG: Final = 512
PORT_MAX: Final = 65535
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
CONNECTIONS_MAX: Final = 10_000
BROKERS_MAX: Final = 1000
"""The maximum number of brokers that responses may name; more are an error."""
HELD_BYTES_MAX: Final = 256 << 20
"""The memory bound of all collected frames together."""
Place = tuple[str, int]
Local = Callable[[int, str, int], int]
"""Node id, host and port of a broker -> its port here. Raises DecodeError if none is free."""


class ProxyListener:
    """The port of one broker, or of one bootstrap address."""

    def __init__(self, settings: ProxySettings, node_id: int, upstream: Place, ports: ListenerPorts) -> None:
        self.node_id = node_id
        """Negative while the broker at this address is unknown."""
        self.upstream = upstream
        self.memory = ports.memory
        self.protocol = "PLAINTEXT" if settings.tls is None else "SSL"
        self.request_bytes_max = settings.frame_bytes_max
        self.answer_bytes_max = settings.frame_bytes_max
        self.connections: dict[tuple[str, int], ProxiedConnection] = {}
        self.listener = ports.listen()
        self.port = int(self.listener.getsockname()[1])
        self.upstream_dispatcher: UpstreamDispatcher
        self.dispatcher: Dispatcher
        self.restart()
        self._settings = settings
        self._ports = ports
        self._names = ports.names
        self._trouble = ""
        self._server: asyncio.Server | None = None

    def restart(self) -> None:
        """Remove all wrappers of the upstream dispatcher."""
        ways: dict[tuple[str, int], UpstreamPort] = self.connections  # type: ignore[assignment]  # a connection is a way
        self.dispatcher = self.upstream_dispatcher = UpstreamDispatcher(ways)

    @property
    def at(self) -> NodeContext:
        """The context that resolves ids in requests."""
        return NodeContext(self.node_id, self._names, lambda session: self.upstream_dispatcher.sessions.places(session))

    @property
    def peers(self) -> Iterable[Peer]:
        """The connected clients."""
        return [one.peer for one in self.connections.values()]

    async def open(self) -> None:
        """Start accepting connections, beginning with those that already wait."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ProxiedConnection(self).client, sock=self.listener, backlog=BACKLOG, start_serving=False
        )
        await self._server.start_serving()

    async def close(self) -> None:
        """Stop accepting connections, and close all."""
        if self._server is not None:
            self._server.close()
        self.listener.close()
        await asyncio.gather(*(one.stop() for one in list(self.connections.values())))

    # --- for connections

    def admit(self, connection: ProxiedConnection) -> bool:
        """See ConnectionOwner."""
        if self._ports.closing or len(self.connections) >= CONNECTIONS_MAX:
            return False
        self.connections[connection.peer.host, connection.peer.port] = connection
        return True

    def remove_connection(self, connection: ProxiedConnection) -> None:
        """See ConnectionOwner."""
        place = connection.peer.host, connection.peer.port
        if self.connections.get(place) is connection:
            del self.connections[place]

    async def begin_tls(self, transport: asyncio.Transport, side: ConnectionSide, peer: Peer) -> asyncio.Transport:
        """See ConnectionOwner."""
        if self._settings.tls is None:
            return transport
        transport.resume_reading()  # `start_tls` pauses reading; uvloop reads until then, and needs this call
        early = side.stream.give_back()
        try:
            return await tls_handshake(self._settings.tls, asyncio.get_running_loop(), transport, side, early)
        except HandshakeFailed as error:
            raise AuthenticationFailed(f"no TLS: {error}") from None

    async def connect(self, side: ConnectionSide) -> asyncio.Transport:
        """See ConnectionOwner."""
        host, port = self.upstream
        tls = self._settings.upstream_tls
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                transport, _ = await loop.create_connection(
                    lambda: side, host, port, ssl=tls, server_hostname=None if tls is None else host
                )
        except OSError as error:
            self.log_trouble(reason_of(error))
            raise
        except (ValueError, OverflowError) as error:  # a response has named an impossible host or port
            self.log_trouble(f"not an address: {error}")
            raise OSError(str(error)) from None
        self.log_trouble("")
        return transport

    def log_trouble(self, trouble: str) -> None:
        """Log an upstream failure once, and its recovery once."""
        if trouble and not self._trouble:
            log.warning("%s does not respond, closing its clients: %s", format_host_port(*self.upstream), trouble)
        elif self._trouble and not trouble:
            log.warning("%s responds again", format_host_port(*self.upstream))
        self._trouble = trouble

    def handling_of(self, head: RequestHeader, peer: Peer) -> Handling:
        """See ConnectionOwner."""
        key, version = head.key, head.version
        if key == API_VERSIONS and version > LAST[API_VERSIONS]:
            return Handling.ANSWER
        if names_brokers(key, version) and version > LAST[key]:
            self._ports.cannot_rewrite(key, version)
        dispatcher = self.dispatcher
        if dispatcher is not self.upstream_dispatcher and not (
            isinstance(dispatcher, FaultInjectingDispatcher)
            and not dispatcher.may_match(key, version, head.client_id, peer)
        ):
            return Handling.INTERCEPT
        if key == FETCH and self.upstream_dispatcher.sessions:
            self.upstream_dispatcher.sessions.clear()  # later requests are not decoded
        if key in (API_VERSIONS, SASL_HANDSHAKE) or (names_brokers(key, version) and version <= LAST[key]):
            return Handling.READ
        return Handling.PASS

    def rewrite(self, head: RequestHeader, frame: bytes, local_host: str) -> bytes:
        """See ConnectionOwner."""
        key, version = head.key, head.version
        if key == API_VERSIONS:
            return cap_versions(frame, version)[0]
        if not names_brokers(key, version) or version > LAST[key] or surely_names_none(key, frame):
            return frame
        found = addresses_in(frame, key, version)
        if not found.addresses:
            return frame
        if key == METADATA:
            self._names.learn(frame, version)
        for one in sorted(distinct(found)):  # assigns ports in the order of ids
            self._ports.add_broker(one.node_id, one.host, one.port)
        host = self._settings.advertised_host or local_host
        return replace(
            found, [(host, self._ports.local(one.node_id, one.host)) for one in found.addresses], version, key
        )

    def own_answer(self, head: RequestHeader) -> bytes:
        """See ConnectionOwner."""
        return unsupported_version_response(head.correlation_id)


class ListenerPorts:
    """All listeners of a proxy."""

    def __init__(
        self, settings: ProxySettings, names: TopicNames, on_listener: Callable[[ProxyListener, int], None]
    ) -> None:
        """`on_listener` is called for each new listener, and when its broker becomes known, with its old id."""
        self.settings = settings
        self.names = names
        self.memory = RequestMemory(HELD_BYTES_MAX)
        self.closing = False
        self._on_listener = on_listener
        self._first: dict[Place, ProxyListener] = {}
        """By bootstrap address, while the broker is unknown."""
        self.brokers: dict[int, ProxyListener] = {}
        """By node id."""
        self._opening: set[asyncio.Task[None]] = set()
        self._unknown: set[int] = set()
        self._next_port = settings.port

    @property
    def first(self) -> list[ProxyListener]:
        """The listeners of bootstrap addresses."""
        return list(self._first.values())

    def __iter__(self) -> Iterator[ProxyListener]:
        return iter(dict.fromkeys([*self._first.values(), *self.brokers.values()]))

    def listen(self) -> socket.socket:
        """Bind a socket to the next port, or to a free one if that is taken."""
        host = self.settings.host
        family = family_of(host)
        port, self._next_port = self._next_port, self._next_port + 1 if self._next_port else 0
        if 0 < port <= PORT_MAX:
            try:
                return socket.create_server((host, port), family=family, backlog=BACKLOG)
            except OSError:
                if not self.brokers and not self._first:
                    raise
                log.warning("port %d is in use; the broker gets a free one", port)
        return socket.create_server((host, 0), family=family, backlog=BACKLOG)

    async def begin_at(self, upstream: Place) -> ProxyListener:
        """Open a listener for a bootstrap address. OSError if the port is taken."""
        proxy_listener = self._first[upstream] = ProxyListener(self.settings, -1 - len(self._first), upstream, self)
        if upstream[1] == proxy_listener.port and upstream[0] in (self.settings.host, *LOOPBACK):
            raise OSError(
                errno.EADDRINUSE,
                f"a proxy at {format_host_port(upstream[0], proxy_listener.port)} cannot be its own upstream",
            )
        self._on_listener(proxy_listener, proxy_listener.node_id)
        await proxy_listener.open()
        return proxy_listener

    def add_broker(self, node_id: int, host: str, port: int) -> None:
        """Add a broker that a response names. Raises DecodeError above the maximum number of brokers."""
        known = self.brokers.get(node_id)
        if known is not None:
            if known.upstream != (host, port):
                log.info("broker %d is at %s now", node_id, format_host_port(host, port))
                known.upstream = host, port
            return
        if len(self.brokers) >= BROKERS_MAX:
            raise DecodeError(f"the upstream names more than {BROKERS_MAX} brokers")
        proxy_listener = self._first.get((host, port))
        if proxy_listener is not None and proxy_listener.node_id < 0:
            before, proxy_listener.node_id = proxy_listener.node_id, node_id
            proxy_listener.restart()
        else:
            before = node_id
            proxy_listener = ProxyListener(self.settings, node_id, (host, port), self)
            task = asyncio.get_running_loop().create_task(proxy_listener.open())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        self.brokers[node_id] = proxy_listener
        log.info("broker %d, at %s, has port %d here", node_id, format_host_port(host, port), proxy_listener.port)
        self._on_listener(proxy_listener, before)

    def local(self, node_id: int, host: str) -> int:
        """The advertised port of a broker; -1 if it has none."""
        proxy_listener = self.brokers.get(node_id)
        return self.settings.port_for_clients(proxy_listener.port) if proxy_listener is not None and host else -1

    def cannot_rewrite(self, key: int, version: int) -> None:
        """Log once that a response passes whose addresses may lead clients around the proxy."""
        if key not in self._unknown:
            self._unknown.add(key)
            log.warning(
                "API %d v%d is unknown and passes unchanged; clients that get addresses of "
                "brokers from it bypass this proxy",
                key,
                version,
            )

    async def close(self) -> None:
        """Close all listeners."""
        self.closing = True
        await asyncio.gather(*self._opening, return_exceptions=True)
        for proxy_listener in self:
            with contextlib.suppress(OSError):
                await proxy_listener.close()


def reason_of(error: OSError) -> str:
    """The reason of a connection failure, in words."""
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_S:g} s"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {getattr(error, 'verify_message', '') or error.reason or error}"
    return error.strerror or str(error) or type(error).__name__
