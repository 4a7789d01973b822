"""Splits a byte stream into frames: every message follows its length, four bytes, big-endian, signed.

Bytes arrive in a buffer that many readers share (`get_buffer`, `buffer_updated`: a `BufferedProtocol` reads from the
socket straight into it, and nothing else happens between the two; others pass bytes to `feed`). Whole frames are copied
out of it at once, as bytes that no other object holds: decoded records may keep slices of them indefinitely. A partial
frame is kept until the rest arrives. So an idle reader, as most are, holds no memory.

A frame larger than the shared buffer is gathered in its own. Memory is bounded by the bytes that arrived, not by the
claimed length: that buffer only doubles as bytes arrive, hardly beyond the frame in progress. A length up to that of
the frame before is trusted, up to one read from the socket: growing step by step would copy each large frame once more.
A negative or oversized length is a `DecodeError`, as Kafka closes such a connection; earlier frames are returned first.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.varint import Buffer

FRAME_BYTES_MAX: Final = 104_857_600
"""Kafka's `socket.request.max.bytes`."""
BUFFER_BYTES: Final = 65_536
"""Size of the shared buffer: the most that one read from the socket may return in small frames."""
ROOM_BYTES: Final = 4_096
"""Less free space than this is not worth a read from the socket."""
READ_BYTES_MAX: Final = 1 << 20
"""The most that one read from the socket may return: between two reads an owner can stop reading."""
LENGTH_BYTES: Final = 4
RECEIVE_BUFFER_FRAME_BYTES_MAX: Final = BUFFER_BYTES - LENGTH_BYTES - ROOM_BYTES
"""A larger frame is gathered in its own buffer, and so are bytes that follow a refused length."""
FOREIGN: Final = {
    b"\x16\x03": "a TLS handshake; this port is not a TLS port (security.protocol=PLAINTEXT or SASL_PLAINTEXT)",
    b"\x15\x03": "a TLS alert; this port is not a TLS port (security.protocol=PLAINTEXT or SASL_PLAINTEXT)",
} | dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"HTTP"), "an HTTP request; this port uses Kafka's protocol")
"""First bytes of other protocols' messages, which arrive on a wrong port."""

_read_length = struct.Struct(">i").unpack_from


class ReceiveBuffer:
    """A receive buffer for readers that are read one after another, such as those of one thread."""

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view = memoryview(bytearray(BUFFER_BYTES))


class FrameReader:
    """Splits a stream of bytes into frames."""

    __slots__ = ("_before", "_gathers", "_landing", "_part", "_part_bytes", "_whole", "buffered", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, landing: ReceiveBuffer | None = None) -> None:
        """Create a reader; `landing` may be shared; without it the reader creates its own at the first bytes."""
        self.frame_bytes_max = frame_bytes_max
        self._landing = landing
        self.buffered = 0
        """The number of bytes held, in whole frames and a partial one."""
        self._whole: deque[bytes] = deque()
        self._part = bytearray(0)  # starts with the bytes that follow those frames
        self._part_bytes = 0
        self._gathers = False  # the next bytes are appended to it, not written to the shared buffer
        self._before = 0  # the length of the frame before

    @property
    def missing(self) -> int:
        """The number of missing bytes of the next frame; 0 if it is whole, or none has begun."""
        if self._whole or self._part_bytes < LENGTH_BYTES:
            return 0
        length: int = _read_length(self._part)[0]
        return max(0, LENGTH_BYTES + length - self._part_bytes)

    def is_next(self, head: bytes) -> bool:
        """Whether the next frame is whole, and starts with `head`."""
        return bool(self._whole) and self._whole[0].startswith(head)

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Return the buffer for the next bytes; never empty, as `asyncio.BufferedProtocol` requires."""
        if not self._gathers:
            if self._landing is None:
                self._landing = ReceiveBuffer()
            view = self._landing.view
            if not self._part_bytes:
                return view
            view[: self._part_bytes] = self._part
            return view[self._part_bytes :]
        if len(self._part) - self._part_bytes < ROOM_BYTES:
            self._gather(memoryview(self._part)[: self._part_bytes])
        return memoryview(self._part)[self._part_bytes : self._part_bytes + READ_BYTES_MAX]

    def buffer_updated(self, count: int) -> int:
        """Add `count` bytes that were written to the last `get_buffer`. Returns how many are `buffered` now."""
        self.buffered += count
        arrived = self._part_bytes + count
        if self._gathers:
            self._part_bytes = arrived
            self._cut(memoryview(self._part)[:arrived])
        elif self._landing is not None:
            self._cut(self._landing.view[:arrived])
        return self.buffered

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes that the caller has read."""
        rest = memoryview(data)
        while rest:
            room = self.get_buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self.buffer_updated(count)
            rest = rest[count:]

    def give_back(self) -> bytes:
        """Return all bytes that arrived and were not returned: the caller knows that they are no frames."""
        unread = b"".join(len(frame).to_bytes(LENGTH_BYTES) + frame for frame in self._whole)
        unread += memoryview(self._part)[: self._part_bytes]
        self._whole.clear()
        self.buffered = 0
        self._keep(memoryview(b""))
        return unread

    def next_frame(self) -> bytes | None:
        """Return the next whole frame without its length, or None until more bytes arrive."""
        if not self._whole:
            if self._part_bytes < LENGTH_BYTES:
                return None
            partial = memoryview(self._part)[: self._part_bytes]
            length: int = _read_length(partial)[0]
            self._check(length, partial)
            if LENGTH_BYTES + length > self._part_bytes:
                return None
            self._cut(partial)  # it was over the limit on arrival, and no longer is
        frame = self._whole[0]
        if len(frame) > self.frame_bytes_max:
            self._check(len(frame), len(frame).to_bytes(LENGTH_BYTES) + frame)
        del self._whole[0]
        self.buffered -= LENGTH_BYTES + len(frame)
        return frame

    def _cut(self, arrived: memoryview) -> None:
        start, end = 0, len(arrived)
        while end - start >= LENGTH_BYTES:
            length: int = _read_length(arrived, start)[0]
            stop = start + LENGTH_BYTES + length
            if stop > end or not 0 <= length <= self.frame_bytes_max:
                break
            self._whole.append(bytes(arrived[start + LENGTH_BYTES : stop]))
            self._before = length
            start = stop
        if (start or not self._gathers) and (start < end or self._part_bytes):
            self._keep(arrived[start:])

    def _keep(self, rest: memoryview) -> None:
        """Keep a partial frame, with space for the missing bytes if the shared buffer is too small."""
        self._part_bytes = len(rest)
        length: int = _read_length(rest)[0] if len(rest) >= LENGTH_BYTES else 0
        self._gathers = not 0 <= length <= min(RECEIVE_BUFFER_FRAME_BYTES_MAX, self.frame_bytes_max)
        if self._gathers:
            self._gather(rest)
        else:
            self._part = bytearray(rest)

    def _gather(self, partial: memoryview) -> None:
        """Move a partial large frame into a larger new buffer.

        Never resize: the caller of `get_buffer` may still hold a view of the old one.
        """
        length: int = _read_length(partial)[0]
        whole = LENGTH_BYTES + max(0, min(length, self.frame_bytes_max))
        believed = max(len(partial) * 2, BUFFER_BYTES, min(self._before + LENGTH_BYTES, READ_BYTES_MAX))
        room = believed if whole <= len(partial) else min(believed, whole)
        larger = bytearray(room + ROOM_BYTES)
        larger[: len(partial)] = partial
        self._part = larger

    def _check(self, length: int, partial: Buffer) -> None:
        if not 0 <= length <= self.frame_bytes_max:
            raise DecodeError(
                f"frame of {length} bytes, allowed are 0 to {self.frame_bytes_max}{_foreign(partial)}",
                buffer=partial,
                part="length",
            )


def _foreign(partial: Buffer) -> str:
    """Return the peer's protocol, if the first bytes of its frame are those of a known one."""
    begin = bytes(partial[:LENGTH_BYTES])
    return next((f": {what}" for head, what in FOREIGN.items() if begin.startswith(head)), "")
