"""Bytes in, frames out: every message travels behind its length, four bytes, big-endian, signed.

The reader owns the receive buffer, so that a `BufferedProtocol` can read from the socket straight into it
(`get_buffer`, `buffer_updated`); others hand bytes over (`feed`). A finished frame is copied out once, as bytes that
no other object holds: decoded records may keep slices of it for as long as they like.

Memory is bounded by what really arrived: a length is a claim, so the buffer only doubles as the bytes come in, hardly
beyond the frame in progress. A claim no larger than the frame before it is believed, up to one read from the socket:
growing step by step would copy each large frame once more. When all is handed out, only a small buffer is kept: most
connections are idle most of the time. A negative or oversized length is a `DecodeError`, as Kafka closes such
a connection.
"""

from __future__ import annotations

import struct
from typing import Final

from anabranch.protocol.errors import DecodeError

FRAME_BYTES_MAX: Final = 104_857_600
"""Kafka's `socket.request.max.bytes`."""
BUFFER_BYTES: Final = 65_536
KEPT_BYTES: Final = 8_192
"""The buffer of a connection that nothing is read from; small requests never need another one."""
ROOM_BYTES: Final = 4_096
"""Less room than this is not worth a read from the socket."""
READ_BYTES_MAX: Final = 1 << 20
"""What one read from the socket may bring: between two of them an owner can decide to read no more."""
LENGTH_BYTES: Final = 4
FOREIGN: Final = {
    b"\x16\x03": "a TLS handshake; this port speaks plain text (security.protocol=PLAINTEXT or SASL_PLAINTEXT)",
    b"\x15\x03": "a TLS alert; this port speaks plain text (security.protocol=PLAINTEXT or SASL_PLAINTEXT)",
} | dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"HTTP"), "that is HTTP, this is Kafka's protocol")
"""How messages of other protocols begin that are sent to the wrong port, or come from it."""

_read_length = struct.Struct(">i").unpack_from


class FrameReader:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_before", "_buffer", "_end", "_start", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray(0)
        self._start = 0
        self._end = 0
        self._before = 0  # the length of the frame before the one that is next

    @property
    def buffered(self) -> int:
        """How many bytes wait here, in whole frames and parts of one."""
        return self._end - self._start

    @property
    def missing(self) -> int:
        """How many bytes have not come yet of the frame that is next; 0 if it is whole, or none has begun."""
        buffered = self._end - self._start
        if buffered < LENGTH_BYTES:
            return 0
        length: int = _read_length(self._buffer, self._start)[0]
        return max(0, LENGTH_BYTES + length - buffered)

    def is_next(self, head: bytes) -> bool:
        """Whether the frame that is next begins so, as far as it has come."""
        first = self._start + LENGTH_BYTES
        return first + len(head) <= self._end and self._buffer.startswith(head, first)

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where the next bytes may be written; never empty, as `asyncio.BufferedProtocol` wants it."""
        if len(self._buffer) - self._end < ROOM_BYTES:
            self._make_room(ROOM_BYTES)
        return memoryview(self._buffer)[self._end : self._end + READ_BYTES_MAX]

    def buffer_updated(self, count: int) -> None:
        """`count` bytes were written to the last `get_buffer`."""
        self._end += count

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take in bytes that the caller has read."""
        if len(self._buffer) - self._end < len(data):
            self._make_room(len(data))
        self._buffer[self._end : self._end + len(data)] = data
        self._end += len(data)

    def give_back(self) -> bytes:
        """All that has arrived and was not handed out: it was no frames, as the owner knows."""
        unread = bytes(memoryview(self._buffer)[self._start : self._end])
        self._start = self._end = 0
        return unread

    def next_frame(self) -> bytes | None:
        """The next whole frame without its length, or None until more bytes arrive."""
        buffered = self._end - self._start
        if buffered < LENGTH_BYTES:
            return None
        length: int = _read_length(self._buffer, self._start)[0]
        if not 0 <= length <= self.frame_bytes_max:
            raise DecodeError(
                f"frame of {length} bytes, allowed are 0 to {self.frame_bytes_max}{self._foreign()}",
                buffer=memoryview(self._buffer)[self._start : self._end],
                part="length",
            )
        if buffered < LENGTH_BYTES + length:
            return None
        first = self._start + LENGTH_BYTES
        self._start = first + length
        self._before = length
        with memoryview(self._buffer) as view:
            frame = bytes(view[first : self._start])
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > KEPT_BYTES:
                self._buffer = bytearray(0)
        return frame

    def _foreign(self) -> str:
        """What the peer speaks, if the first bytes of its frame are known from elsewhere."""
        begin = bytes(self._buffer[self._start : self._start + LENGTH_BYTES])
        return next((f": {what}" for head, what in FOREIGN.items() if begin.startswith(head)), "")

    def _make_room(self, wanted: int) -> None:
        """Move what is left to the front, into a larger buffer if half of this one is in use.

        A new buffer, never a resized one: the caller of `get_buffer` may still hold a view of the old.
        """
        buffered = self._end - self._start
        if buffered + wanted <= len(self._buffer) and buffered * 2 <= len(self._buffer):
            self._buffer[:buffered] = self._buffer[self._start : self._end]
        else:
            capacity = max(buffered + wanted, self._wished(buffered))
            larger = bytearray(capacity)
            larger[:buffered] = memoryview(self._buffer)[self._start : self._end]
            self._buffer = larger
        self._start, self._end = 0, buffered

    def _wished(self, buffered: int) -> int:
        """Room for the frame in progress, as far as it is believed; for what may come, if none has begun."""
        if buffered < LENGTH_BYTES:
            return KEPT_BYTES if self._before <= ROOM_BYTES else BUFFER_BYTES
        length: int = _read_length(self._buffer, self._start)[0]
        whole = LENGTH_BYTES + max(0, min(length, self.frame_bytes_max))
        if whole <= buffered:
            return buffered * 2
        believed = max(buffered * 2, BUFFER_BYTES, min(self._before + LENGTH_BYTES, READ_BYTES_MAX))
        return min(believed, whole) + ROOM_BYTES
