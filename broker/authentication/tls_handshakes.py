"""TLS handshakes that send an alert to the peer when they fail.

OpenSSL writes an alert, but asyncio discards it with the connection. A client that only sees a closed connection takes
it for a network failure and retries; after an alert such as "certificate required" it stops, as with Kafka.
`ReportingContext` is the context for `start_tls`: a failed handshake reports that it needs more bytes, so asyncio sends
OpenSSL's alert; then the connection closes. Source: `SslTransportLayer.handshakeFailure`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE")
"""OpenSSL's reasons for bytes that are not a handshake; their sender does not understand alerts."""
LINGER_S: Final = 1.0
"""How long the peer may take to read the alert and to close."""

HANDSHAKE_BYTES: Final = 8_192
READ_BYTES: Final = 65_536
"""Sizes of the read buffer during the handshake, and later. asyncio allocates 256 KiB for each connection at once:
2,000 unfinished handshakes would hold half a gigabyte.
"""

Tell = Callable[[ssl.SSLError], None]


class _Handshake(ssl.SSLObject):
    tell: Tell | None = None
    transport: asyncio.Transport | None = None
    """None after the first step."""
    _failed = False

    def do_handshake(self) -> None:
        """Continue the handshake. Raises SSLWantReadError to make asyncio send what OpenSSL has written."""
        if self._failed:
            raise ssl.SSLWantReadError  # discard further input
        if self.transport is not None:
            _read_by(self.transport, HANDSHAKE_BYTES)
            self.transport = None
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLSyscallError):
            raise
        except ssl.SSLError as error:
            if self.tell is None or error.reason in NOT_TLS:
                raise
            self._failed = True
            self.tell(error)
            raise ssl.SSLWantReadError from None


class ReportingContext(ssl.SSLContext):
    """The TLS context of a listener, which reports failed handshakes to the peers."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.sslobject_class = _Handshake
        self._pending: deque[tuple[Tell, bytes, asyncio.Transport]] = deque()
        """The `start_tls` calls without a handshake object; the loop creates the objects in the order of the calls."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Create the handshake of the oldest `start_tls` call."""
        made = super().wrap_bio(incoming, *arguments, **named)
        if self._pending and isinstance(made, _Handshake):
            made.tell, early, made.transport = self._pending.popleft()
            incoming.write(early)
        return made

    @contextmanager
    def telling(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, early: bytes
    ) -> Iterator[list[ssl.SSLError]]:
        """Wrap `start_tls`, and collect the handshake's failure, whatever error `start_tls` raises afterwards.

        `early` holds the bytes that the peer sent before.
        """
        failures: list[ssl.SSLError] = []

        def on_failure(error: ssl.SSLError) -> None:
            failures.append(error)
            loop.call_soon(_close_after_linger, loop, transport)  # asyncio has sent the alert by then

        pending = on_failure, early, transport
        self._pending.append(pending)
        try:
            yield failures
            _read_by(transport, READ_BYTES)
        finally:
            if pending in self._pending:
                self._pending.remove(pending)


def _read_by(transport: asyncio.Transport, size: int) -> None:
    """Release asyncio's read buffer; asyncio allocates one of `max_size` at the next read."""
    protocol: Any = transport.get_protocol()
    if hasattr(protocol, "_ssl_buffer"):  # uvloop's protocol exposes no such buffer, and needs no change
        protocol.max_size = size
        protocol._ssl_buffer = bytearray(0)
        protocol._ssl_buffer_view = memoryview(protocol._ssl_buffer)


def _close_after_linger(loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
    """Half-close, and wait for the peer to close: a close with unread input would discard the alert."""
    if transport.is_closing():
        return
    try:
        transport.write_eof()
    except OSError:  # the peer has disconnected
        transport.abort()
    else:
        loop.call_later(LINGER_S, transport.abort)
