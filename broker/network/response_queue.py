"""The responses of one connection that its transport has not accepted, written in pieces as the peer reads.

A transport copies what it cannot send at once. It therefore gets at most one piece beyond its high-water mark, and
a response of 50 MB stays the one object that was read from the log.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.protocol.varint import Buffer

PIECE_BYTES: Final = 1 << 20


def kernel_unsent_bytes(transport: asyncio.Transport) -> int:
    """Return how many sent bytes the peer has not acknowledged; 0 where the system cannot tell."""
    socket = transport.get_extra_info("socket")
    if socket is None:
        return 0
    try:
        size_bytes: int = struct.unpack("i", fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
    except OSError:
        return 0
    return size_bytes


class ResponseQueue:
    """Buffers in the order of sending."""

    __slots__ = ("_buffers", "_first_sent_bytes", "size_bytes")

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._first_sent_bytes = 0
        self.size_bytes = 0
        """The size of the buffers in memory; the first may be partly sent."""

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes that the transport has not accepted."""
        return self.size_bytes - self._first_sent_bytes

    def add(self, buffers: list[Buffer], size_bytes: int) -> None:
        """Append buffers of this total size."""
        self._buffers += buffers
        self.size_bytes += size_bytes

    def clear(self) -> None:
        """Drop all buffers."""
        self._buffers, self._first_sent_bytes, self.size_bytes = [], 0, 0

    def write_piece(self, transport: asyncio.Transport, room: int = PIECE_BYTES) -> None:
        """Write the next piece, of at most `room` bytes, to the transport."""
        piece: list[Buffer] = []
        done = 0
        for buffer in self._buffers:
            size = len(buffer) - self._first_sent_bytes
            if size > room:
                start = self._first_sent_bytes
                piece.append(memoryview(buffer)[start : start + room])
                self._first_sent_bytes += room
                break
            piece.append(memoryview(buffer)[self._first_sent_bytes :] if self._first_sent_bytes else buffer)
            self._first_sent_bytes = 0
            self.size_bytes -= len(buffer)
            done += 1
            room -= size
            if not room:
                break
        del self._buffers[:done]
        # `writelines` does not pause the protocol in CPython 3.12.0 to 3.12.8 (CVE-2024-12254).
        transport.write(piece[0] if len(piece) == 1 else b"".join(piece))
