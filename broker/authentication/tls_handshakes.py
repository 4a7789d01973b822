"""Handshakes of TLS that tell the peer why they have failed.

OpenSSL writes an alert for that, which asyncio throws away with the connection. A client that only sees its connection
closed takes that for a broken network and tries again for as long as it may; one that is told "certificate required"
gives up at once, as with Kafka. `ReportingContext` is what `start_tls` is given: as a handshake of it fails, it
pretends that more bytes are missing, so that asyncio sends what OpenSSL has written, and the connection is closed
behind that. Source: `SslTransportLayer.handshakeFailure`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE")
"""What OpenSSL says of bytes that are no handshake; whoever sent them understands no alert."""
LINGER_S: Final = 1.0
"""How long a peer may take to read why, and to close."""

HANDSHAKE_BYTES: Final = 8_192
READ_BYTES: Final = 65_536
"""What a connection is read by while it shakes hands, and later. asyncio has 256 KiB for each from the beginning: 2,000
that begin a handshake, and leave it at that, would hold half a gigabyte."""

Tell = Callable[[ssl.SSLError], None]


class _Handshake(ssl.SSLObject):
    """One handshake."""

    tell: Tell | None = None
    transport: asyncio.Transport | None = None
    """Until the first step."""
    _failed = False

    def do_handshake(self) -> None:
        """Shake hands as far as the bytes go. Raises SSLWantReadError to have what was written sent."""
        if self._failed:
            raise ssl.SSLWantReadError  # what follows is read, and no concern of ours
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
    """What the connections of a listener with TLS have in common."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.sslobject_class = _Handshake
        self._begun: deque[tuple[Tell, bytes, asyncio.Transport]] = deque()
        """Of those for which the loop has not made a handshake yet. It does so in the order of the calls."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """A handshake: that of the oldest `start_tls`."""
        made = super().wrap_bio(incoming, *arguments, **named)
        if self._begun and isinstance(made, _Handshake):
            made.tell, early, made.transport = self._begun.popleft()
            incoming.write(early)
        return made

    @contextmanager
    def telling(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, early: bytes
    ) -> Iterator[list[ssl.SSLError]]:
        """Around `start_tls`: the failure, if there is one, whatever `start_tls` makes of the end that follows.

        `early` is what the peer has sent before.
        """
        failures: list[ssl.SSLError] = []

        def failed(error: ssl.SSLError) -> None:
            failures.append(error)
            loop.call_soon(_close_after_linger, loop, transport)  # the alert is on its way by then

        begun = failed, early, transport
        self._begun.append(begun)
        try:
            yield failures
            _read_by(transport, READ_BYTES)
        finally:
            if begun in self._begun:
                self._begun.remove(begun)


def _read_by(transport: asyncio.Transport, size: int) -> None:
    """Give back the buffer that asyncio has made; it makes one of `max_size` when it reads."""
    protocol: Any = transport.get_protocol()
    if hasattr(protocol, "_ssl_buffer"):  # uvloop's has none that Python could see, and needs no help
        protocol.max_size = size
        protocol._ssl_buffer = bytearray(0)
        protocol._ssl_buffer_view = memoryview(protocol._ssl_buffer)


def _close_after_linger(loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
    """Send no more, and close when the peer does: closing with something unread would take the alert back."""
    if transport.is_closing():
        return
    try:
        transport.write_eof()
    except OSError:  # the peer has gone meanwhile
        transport.abort()
    else:
        loop.call_later(LINGER_S, transport.abort)
