"""An outgoing connection to a node, used by clients, replica fetchers and the controller's channels.

A thin shell around `protocol.connection.ClientConnection`. It moves bytes, matches answers to callers and owns two
clocks: one for connecting, one for the oldest unanswered request. Requests leave in the order in which `send` was
called, and Kafka answers them in that order.

Three things can happen to a call, and each has its own exception:

    the answer arrives          the decoded response is returned, error codes and all: what they mean is the caller's
    the connection is lost      `ConnectionError`, for every open call: their outcome is unknown
    no answer within the time   `TimeoutError` for that call, and the connection is reset: a peer that stopped answering
                                would hold up everything behind it, and what it has not received yet must not arrive
                                after the caller has asked again, as it would if the connection were only closed

Bytes that make no sense close the connection, with one log line. No task is started per request or per connection.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from anabranch.clients.authentication import AuthenticationFailed, log_in
from anabranch.clients.receive_buffer import thread_receive_buffer
from anabranch.clients.timer import Timer
from anabranch.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from anabranch.protocol.connection import CLIENT_SOFTWARE, ClientConnection
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.host_port import format_host_port
from anabranch.protocol.registry import Api, api_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.clients.security import Security

log = logging.getLogger(__name__)

SOFTWARE_VERSION: Final = "0.1.0"

RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER with no time: closing the socket resets the connection."""

_apis: Final[dict[type[Any], Api]] = {}


def _api_of(message: type[Any]) -> Api:
    """Return the API of a request class; cached, because every request needs it."""
    api = _apis.get(message)
    if api is None:
        api = _apis[message] = api_of(message)
    return api


@dataclass(slots=True)
class _Call:
    """One request in flight. A cancelled caller leaves its entry: its response will still arrive."""

    answer: asyncio.Future[Any]
    deadline: float
    name: str


class Connection(asyncio.BufferedProtocol):
    """A connection to one node, with the negotiated API versions. Create it with `Connection.open`."""

    def __init__(self, *, client_id: str | None, request_timeout_ms: int, software_name: str = CLIENT_SOFTWARE) -> None:
        self._loop = asyncio.get_running_loop()
        self._core = ClientConnection(client_id, landing=thread_receive_buffer())
        self._request_timeout_s = request_timeout_ms / 1000
        self._software_name = software_name
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, _Call] = {}
        self._timer = Timer(self._expire)
        self._versions: dict[int, tuple[int, int]] = {}
        self._lost: Exception | None = None
        self._held: list[tuple[Any, int, _Call | None]] | None = None
        """Requests queued behind the login in progress; None: there is none."""
        self._login: asyncio.TimerHandle | None = None
        self._logging_in: asyncio.Task[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self.peer = "?"

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None,
        request_timeout_ms: int = 30000,
        connect_timeout_ms: int = 10000,
        security: Security | None = None,
        software_name: str = CLIENT_SOFTWARE,
    ) -> Connection:
        """Connect to a node, by TLS if `security` requires it, negotiate versions, and log in.

        A node that NODE_SOFTWARE connects to serves inter-node APIs, whatever profile it shows to clients.

        Raises ConnectionError if no process listens there or the address is invalid, TimeoutError if it does not answer
        within the two timeouts, AuthenticationFailed if it refuses the login, or is not the expected host.
        """
        connection: Connection | None = None
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                connection = await _connect(
                    lambda: cls(
                        client_id=client_id, request_timeout_ms=request_timeout_ms, software_name=software_name
                    ),
                    host,
                    port,
                    security,
                )
                connection.peer = format_host_port(host, port)
                await connection._negotiate()
                if security is not None and security.mechanism:
                    await connection._log_in(security)
        except TimeoutError as late:
            _abort(connection)
            raise TimeoutError(
                f"{format_host_port(host, port)} did not answer within {connect_timeout_ms} ms"
            ) from late
        except (AuthenticationFailed, ssl.SSLError) as refused:
            _abort(connection)
            what = getattr(refused, "verify_message", "") or getattr(refused, "reason", "") or refused
            raise AuthenticationFailed(f"{format_host_port(host, port)}: {what}") from refused
        except OSError as error:
            _abort(connection)
            hint = "" if isinstance(error, socket.gaierror) else _hint(connection, security)
            peer, cause = format_host_port(host, port), str(error) or "it was closed"
            raise ConnectionError(f"cannot connect to {peer}: {cause}{hint}") from error
        except BaseException:
            _abort(connection)
            raise
        return connection

    @property
    def closed(self) -> bool:
        """Whether the connection accepts no more calls."""
        return self._lost is not None

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._calls)

    def version_for(self, request_class: type[Any]) -> int:
        """Return the newest common version. Raises `KafkaError(UNSUPPORTED_VERSION)` if there is none."""
        api = _api_of(request_class)
        served = self._versions.get(api.key)
        if served is None or served[0] > api.newest_sent or served[1] < 0:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{self.peer} does not serve {api.name}")
        return min(api.newest_sent, served[1])

    def supports(self, request_class: type[Any]) -> bool:
        """Whether the peer serves a version of this API that this client supports."""
        served = self._versions.get(_api_of(request_class).key)
        return served is not None and served[0] <= _api_of(request_class).newest_sent

    async def call(self, request: Any, *, version: int | None = None, timeout_ms: float | None = None) -> Any:
        """Send a request and wait for its response."""
        return await self.send(request, version=version, timeout_ms=timeout_ms)

    def send(self, request: Any, *, version: int | None = None, timeout_ms: float | None = None) -> asyncio.Future[Any]:
        """Send a request now; the future gets the response, `ConnectionError` or `TimeoutError`.

        Raises ValueError for a value that the request cannot carry.
        """
        if self._lost is not None:
            raise ConnectionError(f"{self.peer}: {self._lost}")
        request_class = type(request)
        chosen = self.version_for(request_class) if version is None else version
        seconds = self._request_timeout_s if timeout_ms is None else timeout_ms / 1000
        call = _Call(self._loop.create_future(), self._loop.time() + seconds, request_class.__name__)
        if self._held is None:
            self._transmit(request, chosen, call)
        else:
            self._held.append((request, chosen, call))
        return call.answer

    def send_oneway(self, request: Any, *, version: int | None = None) -> None:
        """Send a request without a response: Produce with acks=0."""
        if self._lost is not None:
            raise ConnectionError(f"{self.peer}: {self._lost}")
        chosen = self.version_for(type(request)) if version is None else version
        if self._held is None:
            self._transmit(request, chosen, None)
        else:
            self._held.append((request, chosen, None))

    async def close(self) -> None:
        """Close the connection; open calls fail with `ConnectionError`."""
        self._fail(ConnectionError("closed by us"))
        if self._transport is not None:
            await asyncio.shield(self._gone)

    def abort(self, reason: str) -> None:
        """Drop the connection without waiting; open calls fail with `ConnectionError`."""
        self._fail(ConnectionError(reason))

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the transport; called by the loop."""
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer to read into; called by the loop."""
        return self._core.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Complete every call whose response is complete; called by the loop."""
        try:
            answers = self._core.buffer_updated(nbytes)
        except DecodeError as error:
            log.warning("closing the connection to %s: %s", self.peer, error)
            self._fail(ConnectionError(f"malformed response of {self.peer}: {error}"))
            return
        for correlation_id, response in answers:
            call = self._calls.pop(correlation_id)
            if not call.answer.done():
                call.answer.set_result(response)

    def eof_received(self) -> None:
        """Return None, which closes the transport; called by the loop."""

    def connection_lost(self, error: Exception | None) -> None:
        """Fail all open calls; called once by the loop."""
        self._fail(ConnectionError(f"connection lost: {error or 'closed by the peer'}"))
        if not self._gone.done():
            self._gone.set_result(None)

    # internals

    def _transmit(self, request: Any, version: int, call: _Call | None) -> None:
        try:
            correlation_id, chunks = self._core.request(request, version, expects_answer=call is not None)
        except (struct.error, AttributeError, TypeError, OverflowError) as error:  # what encoders raise
            raise ValueError(f"{type(request).__name__} cannot carry one of its values: {error}") from error
        if call is not None:
            self._calls[correlation_id] = call
            self._timer.set_by(call.deadline)
        self._write(chunks)

    async def _log_in(self, security: Security) -> None:
        """Log in, and schedule reauthentication. Raises AuthenticationFailed, ConnectionError."""
        again_s = await log_in(security, self._call_at_once)
        if again_s is not None and self._lost is None:
            self._login = self._loop.call_later(again_s, self._begin_login, security)

    def _begin_login(self, security: Security) -> None:
        if self._lost is None:
            self._logging_in = self._loop.create_task(self._log_in_again(security))

    async def _log_in_again(self, security: Security) -> None:
        """Reauthenticate a connection in use, whose other requests wait meanwhile; close it after any failure.

        A function of the user that returns a token may raise anything.
        """
        self._held = []
        try:
            async with asyncio.timeout(self._request_timeout_s):
                await self._log_in(security)
        except Exception as error:  # whatever the source of its token raises
            log.warning("closing the connection to %s: re-authentication failed: %s", self.peer, error)
            self._fail(ConnectionError(f"re-authentication failed: {error}"))
            return
        held, self._held = self._held, None
        for request, version, call in held or ():  # None: the connection was lost just after the last response
            if call is None or not call.answer.done():
                try:
                    self._transmit(request, version, call)
                except ValueError as unfit:
                    if call is not None:
                        call.answer.set_exception(unfit)

    async def _call_at_once(self, request: Any) -> Any:
        """Send a request of the login itself, ahead of queued ones."""
        if self._lost is not None:
            raise ConnectionError(f"{self.peer}: {self._lost}")
        deadline = self._loop.time() + self._request_timeout_s
        call = _Call(self._loop.create_future(), deadline, type(request).__name__)
        self._transmit(request, self.version_for(type(request)), call)
        return await call.answer

    def _write(self, chunks: list[Any]) -> None:
        assert self._transport is not None, "the connection is not open"
        self._transport.writelines(chunks)

    def _fail(self, error: Exception) -> None:
        """End this connection: every open call gets `error`, and the timer is cancelled."""
        if self._lost is None:
            self._lost = error
        self._timer.cancel()
        if self._login is not None:
            self._login.cancel()
        calls, self._calls = self._calls, {}
        held, self._held = self._held, None
        for call in (*calls.values(), *(one for _, _, one in held or ())):
            if call is not None and not call.answer.done():
                call.answer.set_exception(ConnectionError(f"{self.peer}: {self._lost}"))
        if self._transport is not None:
            self._transport.abort()

    def _expire(self) -> None:
        """Handle the timer of the oldest deadline. Answered calls leave it armed, so it often does nothing."""
        now = self._loop.time()
        open_calls = [call for call in self._calls.values() if not call.answer.done()]
        late = [call for call in open_calls if call.deadline <= now]
        for call in late:
            call.answer.set_exception(TimeoutError(f"{self.peer} did not answer {call.name} in time"))
        if late:
            self._leave_nothing_to_the_kernel()
            self._fail(ConnectionError(f"{late[0].name} was not answered in time"))
        elif open_calls:
            self._timer.set_by(min(call.deadline for call in open_calls))

    def _leave_nothing_to_the_kernel(self) -> None:
        """Reset the connection on close: the kernel would otherwise keep sending unacknowledged data."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)

    async def _negotiate(self) -> None:
        """Send ApiVersions, newest version first; an older peer answers v0 with its versions (KIP-511)."""
        api = _api_of(ApiVersionsRequest)
        request = ApiVersionsRequest(client_software_name=self._software_name, client_software_version=SOFTWARE_VERSION)
        response: ApiVersionsResponse = await self.call(request, version=api.last_version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            advertised = next((one.max_version for one in response.api_keys if one.api_key == api.key), 0)
            response = await self.call(request, version=max(0, min(api.last_version, advertised)))
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(response.error_code), f"{self.peer} refuses ApiVersions")
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._calls)} in flight"
        return f"<Connection to {self.peer}, {state}>"


async def _connect(factory: Callable[[], Connection], host: str, port: int, security: Security | None) -> Connection:
    """Connect a new protocol to an address that a peer may have named. Raises OSError for every kind of failure.

    An invalid host raises UnicodeError or ValueError in the IDNA codec or the resolver, an invalid port OverflowError
    in the socket. Each becomes a `socket.gaierror`, as for an unknown name.
    """
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(factory, host, port, **_tls_options(security, host))
    except OSError:  # also ssl.CertificateError, which is a ValueError too
        raise
    except (ValueError, OverflowError) as error:
        raise socket.gaierror(socket.EAI_NONAME, f"invalid address: {error}") from error
    return connection


def _tls_options(security: Security | None, host: str) -> dict[str, Any]:
    if security is None or security.tls is None:
        return {}
    return {"ssl": security.tls, "server_hostname": host}


def _hint(connection: Connection | None, security: Security | None) -> str:
    """Suggest why a peer accepted a connection and closed it before any response."""
    if connection is None:
        return " in the TLS handshake: its listener may not use TLS (security_protocol)" if _by_tls(security) else ""
    if connection._versions:
        return ""
    secured = "" if security is None else ", or none"
    return f" before any response: its listener may need TLS or SASL (security_protocol){secured}"


def _by_tls(security: Security | None) -> bool:
    return security is not None and security.tls is not None


def _abort(connection: Connection | None) -> None:
    if connection is not None:
        connection.abort("could not be opened")
