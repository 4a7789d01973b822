"""Writes the encoded responses of one connection, together where possible, and only as fast as the peer reads.

Responses to requests that arrived together leave in one write. Those of several clients' connections leave together
(`turn_writer`); a node's responses do not wait for others. While the transport holds more than `FREE_BYTES`, later
responses stay in a `ResponseQueue`, and all of them count in `ResponseMemory` until the peer has read them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.broker.network.response_queue import PIECE_BYTES, ResponseQueue, kernel_unsent_bytes
from anabranch.broker.quotas.request_memory import FREE_BYTES

if TYPE_CHECKING:
    from anabranch.broker.network.turn_writer import TurnWriter
    from anabranch.broker.quotas.response_memory import ResponseHolder, ResponseMemory
    from anabranch.protocol.varint import Buffer

UNSENT_RESPONSE_BYTES_MAX: Final = 1 << 20
"""The most bytes of responses that may wait in a socket before its connection processes the next request."""
TLS_PIECE_BYTES: Final = 1 << 16
"""A transport with TLS has another one below it, whose bytes it does not count: it may accept one more piece."""
BATCHED_RESPONSE_BYTES_MAX: Final = 1 << 16
"""The most bytes of responses that are held back to be written with those to the following requests."""


class ResponseWriterOwner(Protocol):
    """The part of the server that a writer uses."""

    turn_writer: TurnWriter
    response_memory: ResponseMemory
    sent_bytes: int


class ResponseWriter:
    """The responses of one connection that its peer has not read."""

    __slots__ = (
        "_closing", "_connection", "_is_full", "_piece_bytes", "_responses", "_server", "_transport", "_unsent",
        "is_paused", "sends_alone", "size_bytes",
    )  # fmt: skip

    def __init__(self, connection: ResponseHolder, server: ResponseWriterOwner) -> None:
        self._connection = connection
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._responses: list[Buffer] = []
        self._unsent = ResponseQueue()
        self._piece_bytes = PIECE_BYTES
        self._is_full = False  # whether the transport holds more than FREE_BYTES
        self._closing = False
        self.sends_alone = False
        """Whether responses do not wait for those of other connections: those to a node."""
        self.size_bytes = 0
        """The size of the responses that were added and not sent."""
        self.is_paused = False
        """Whether the peer has so many unread responses that its next request has to wait."""

    def use(self, transport: asyncio.Transport) -> None:
        """Write to this transport from now on."""
        self._transport = transport
        self._piece_bytes = PIECE_BYTES if transport.get_extra_info("sslcontext") is None else TLS_PIECE_BYTES
        transport.set_write_buffer_limits(high=FREE_BYTES)

    def add(self, chunks: list[Buffer]) -> None:
        """Queue a response for the next write."""
        self._responses += chunks
        for chunk in chunks:
            self.size_bytes += len(chunk)

    def send(self) -> None:
        """Write all responses that were added."""
        responses = self._responses
        if not responses:
            return
        size_bytes, self._responses, self.size_bytes = self.size_bytes, [], 0
        if self._transport is None:
            return
        self._server.sent_bytes += size_bytes
        if size_bytes <= self._piece_bytes and not self._is_full:
            if len(responses) == 1:
                self._transport.write(responses[0])
            else:
                self._transport.writelines(responses)
            return
        self._unsent.add(responses, size_bytes)
        self._write_unsent()

    def send_with_others(self) -> None:
        """Write all responses that were added, together with those of other connections if that may wait."""
        if self.sends_alone or self.size_bytes > BATCHED_RESPONSE_BYTES_MAX:
            self.send()
        else:
            self._server.turn_writer.write(self.send)

    def pause(self) -> None:
        """Keep responses back: the transport has enough."""
        self._is_full = True
        self._hold_unsent()

    def resume(self) -> None:
        """Write responses again: the peer has read enough of the transport's buffer."""
        self._is_full = False
        self._write_unsent()

    def close(self) -> None:
        """Close the transport once all responses are sent."""
        self._closing = True
        self.send()
        if self._transport is not None and not self._unsent.size_bytes:
            self._transport.close()

    def drop(self) -> None:
        """Drop all responses: the connection is lost."""
        self._transport = None
        self._unsent.clear()

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes of responses the peer has not read. The system shows slow readers only by its own
        buffer.
        """
        transport = self._transport
        if transport is None:
            return 0
        return self._unsent.unsent_bytes + transport.get_write_buffer_size() + kernel_unsent_bytes(transport)

    def _write_unsent(self) -> None:
        """Write what the transport accepts, and count the rest."""
        unsent = self._unsent
        while unsent.size_bytes and not self._is_full and self._transport is not None:
            unsent.write_piece(self._transport, self._piece_bytes)
        if self._closing:
            # Pitfall: asyncio's transport ends twice if it is closed, with an empty buffer, while it calls `resume`.
            asyncio.get_running_loop().call_soon(self.close)
        self._hold_unsent()

    def _hold_unsent(self) -> None:
        """Count the encoded responses that are not sent yet."""
        size_bytes = 0
        if self._transport is not None and self._is_full:
            size_bytes = self._unsent.size_bytes + self._transport.get_write_buffer_size()
        self.is_paused = size_bytes > UNSENT_RESPONSE_BYTES_MAX
        if size_bytes or self._connection.held_response_bytes:
            self._server.response_memory.hold(self._connection, size_bytes)
