"""One end of a connection through a proxy, as the loop sees it: what comes from there, and how fast it takes what goes
there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from anabranch.broker.authorization.peer import Peer
    from anabranch.protocol.varint import Buffer
    from anabranch.proxy.frame_stream import FrameStream

UNSENT_BYTES_MAX: Final = 1 << 18
"""How many bytes may wait to be taken by a side before no more are read for it."""


class SideOwner(Protocol):
    """The connection that has two sides."""

    peer: Peer

    def on_connected(self, side: ConnectionSide) -> None:
        """A side is connected."""

    def process(self) -> None:
        """Something has come, or can be written."""

    def apply_backpressure(self) -> None:
        """A side takes no more."""

    def on_lost(self, side: ConnectionSide) -> None:
        """A side is gone."""


class ConnectionSide(asyncio.Protocol):
    """One of the two ends: what comes from there, and how fast it takes what goes there."""

    def __init__(self, connection: SideOwner, stream: FrameStream) -> None:
        self._connection = connection
        self.stream = stream
        self.transport: asyncio.Transport | None = None
        self.held_bytes = 0
        """What `RequestMemory` counts."""
        self.full = False
        """Whether it does not take what is written."""
        self._paused = False

    @property
    def peer(self) -> Peer:
        """For log lines."""
        return self._connection.peer

    @property
    def missing_bytes(self) -> int:
        """How many bytes are missing of the frame that is gathered from it."""
        return self.stream.missing_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._connection.on_connected(self)

    def take_over(self, transport: asyncio.Transport) -> None:
        """Another transport in place of the first, that reads no more than it did: TLS begins to read at once."""
        self.transport = transport if self.transport is not None else None
        if self.transport is not None:
            transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
            if self._paused:
                transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Called by the loop."""
        self.stream.feed(data)
        self._connection.process()

    def pause_writing(self) -> None:
        """Called by the loop."""
        self.full = True
        self._connection.apply_backpressure()

    def resume_writing(self) -> None:
        """Called by the loop."""
        self.full = False
        self._connection.process()

    def eof_received(self) -> bool:
        """Called by the loop: whoever sends no more is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self.transport = None
        self._connection.on_lost(self)

    def write(self, chunks: list[Buffer]) -> None:
        """Send, if anybody is there."""
        if chunks and self.transport is not None:
            if len(chunks) == 1:
                self.transport.write(chunks[0])
            else:
                self.transport.writelines(chunks)

    def pause(self) -> None:
        """Read no more."""
        if not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()

    def close(self) -> None:
        """Close once what was written has left."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()
