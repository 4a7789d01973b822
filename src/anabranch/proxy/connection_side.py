"""One side of a proxied connection, as an asyncio protocol: received bytes and write backpressure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.protocol.varint import Buffer
    from anabranch.proxy.frame_stream import FrameStream

UNSENT_BYTES_MAX: Final = 1 << 18
"""How many unsent bytes a side may hold before the other side is no longer read."""


class SideOwner(Protocol):
    """The interface of a connection with two sides."""

    peer: Peer

    def on_connected(self, side: ConnectionSide) -> None:
        """A side is connected."""

    def process(self) -> None:
        """Bytes have arrived, or a side can be written again."""

    def apply_backpressure(self) -> None:
        """A side's write buffer is full."""

    def on_lost(self, side: ConnectionSide) -> None:
        """A side is closed."""


class ConnectionSide(asyncio.Protocol):
    """One side of a proxied connection: received bytes and write backpressure."""

    def __init__(self, connection: SideOwner, stream: FrameStream) -> None:
        self._connection = connection
        self.stream = stream
        self.transport: asyncio.Transport | None = None
        self.held_bytes = 0
        """Counted by `RequestMemory`."""
        self.full = False
        """Whether the write buffer is full."""
        self._paused = False

    @property
    def peer(self) -> Peer:
        """For log lines."""
        return self._connection.peer

    @property
    def missing_bytes(self) -> int:
        """The number of missing bytes of the frame that is being read."""
        return self.stream.missing_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._connection.on_connected(self)

    def take_over(self, transport: asyncio.Transport) -> None:
        """Replace the transport (TLS), and keep reading paused if it was: TLS starts reading at once."""
        self.transport = transport if self.transport is not None else None
        if self.transport is not None:
            transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
            if self._paused:
                transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self.stream.feed(data)
        self._connection.process()

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self.full = True
        self._connection.apply_backpressure()

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self.full = False
        self._connection.process()

    def eof_received(self) -> bool:
        """Called by asyncio: a half-closed connection counts as closed."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self.transport = None
        self._connection.on_lost(self)

    def write(self, chunks: list[Buffer]) -> None:
        """Write, if connected."""
        if chunks and self.transport is not None:
            if len(chunks) == 1:
                self.transport.write(chunks[0])
            else:
                self.transport.writelines(chunks)

    def pause(self) -> None:
        """Pause reading."""
        if not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()

    def close(self) -> None:
        """Close after all bytes are written."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()
