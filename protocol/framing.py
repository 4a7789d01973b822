"""Bytes in, frames out: every message travels behind its length, four bytes, big-endian, signed.

Bytes land in a buffer that many readers share (`get_buffer`, `buffer_updated`: a `BufferedProtocol` reads from the
socket straight into it, and nothing else happens between the two; others hand bytes over, `feed`). Whole
frames are copied out of it at once, as bytes that no other object holds: decoded records may keep slices of them for as
long as they like. What has come of the next frame is kept until the rest comes. So a reader that waits for nothing
holds nothing: most connections are idle most of the time.

A frame larger than that is gathered in a buffer of its own. Memory is bounded by what really arrived: a length is a
claim, so that buffer only doubles as the bytes come in, hardly beyond the frame in progress. A claim no larger than the
frame before it is believed, up to one read from the socket: growing step by step would copy each large frame once more.
A negative or oversized length is a `DecodeError`, as Kafka closes such a connection; the frames before it are handed
out first.
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
"""What lands at once: the most of small frames that one read from the socket may bring."""
ROOM_BYTES: Final = 4_096
"""Less room than this is not worth a read from the socket."""
READ_BYTES_MAX: Final = 1 << 20
"""What one read from the socket may bring: between two of them an owner can decide to read no more."""
LENGTH_BYTES: Final = 4
RECEIVE_BUFFER_FRAME_BYTES_MAX: Final = BUFFER_BYTES - LENGTH_BYTES - ROOM_BYTES
"""A larger frame is gathered in a buffer of its own, and so is what comes behind a length that is refused."""
FOREIGN: Final = {
    b"\x16\x03": "a TLS handshake; this port speaks plain text (security.protocol=PLAINTEXT or SASL_PLAINTEXT)",
    b"\x15\x03": "a TLS alert; this port speaks plain text (security.protocol=PLAINTEXT or SASL_PLAINTEXT)",
} | dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"HTTP"), "that is HTTP, this is Kafka's protocol")
"""How messages of other protocols begin that are sent to the wrong port, or come from it."""

_read_length = struct.Struct(">i").unpack_from


class ReceiveBuffer:
    """Where bytes land: a buffer for all readers that are read into one after another, as those of one thread are."""

    __slots__ = ("view",)

    def __init__(self) -> None:
        self.view = memoryview(bytearray(BUFFER_BYTES))


class FrameReader:
    """Cuts a stream of bytes into frames."""

    __slots__ = ("_before", "_gathers", "_landing", "_part", "_part_bytes", "_whole", "buffered", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, landing: ReceiveBuffer | None = None) -> None:
        """`landing` may be shared with others; without one it makes one of its own when bytes come."""
        self.frame_bytes_max = frame_bytes_max
        self._landing = landing
        self.buffered = 0
        """How many bytes wait here, in whole frames and parts of one."""
        self._whole: deque[bytes] = deque()
        self._part = bytearray(0)  # begins with what has come of the frame behind those
        self._part_bytes = 0
        self._gathers = False  # the next bytes go behind it, and do not land where all do
        self._before = 0  # the length of the frame before

    @property
    def missing(self) -> int:
        """How many bytes have not come yet of the frame that is next; 0 if it is whole, or none has begun."""
        if self._whole or self._part_bytes < LENGTH_BYTES:
            return 0
        length: int = _read_length(self._part)[0]
        return max(0, LENGTH_BYTES + length - self._part_bytes)

    def is_next(self, head: bytes) -> bool:
        """Whether the frame that is next has come, and begins so."""
        return bool(self._whole) and self._whole[0].startswith(head)

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where the next bytes may be written; never empty, as `asyncio.BufferedProtocol` wants it."""
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
        """`count` bytes were written to the last `get_buffer`. Returns how many are `buffered` now."""
        self.buffered += count
        arrived = self._part_bytes + count
        if self._gathers:
            self._part_bytes = arrived
            self._cut(memoryview(self._part)[:arrived])
        elif self._landing is not None:
            self._cut(self._landing.view[:arrived])
        return self.buffered

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take in bytes that the caller has read."""
        rest = memoryview(data)
        while rest:
            room = self.get_buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self.buffer_updated(count)
            rest = rest[count:]

    def give_back(self) -> bytes:
        """All that has arrived and was not handed out: it was no frames, as the owner knows."""
        unread = b"".join(len(frame).to_bytes(LENGTH_BYTES) + frame for frame in self._whole)
        unread += memoryview(self._part)[: self._part_bytes]
        self._whole.clear()
        self.buffered = 0
        self._keep(memoryview(b""))
        return unread

    def next_frame(self) -> bytes | None:
        """The next whole frame without its length, or None until more bytes arrive."""
        if not self._whole:
            if self._part_bytes < LENGTH_BYTES:
                return None
            begun = memoryview(self._part)[: self._part_bytes]
            length: int = _read_length(begun)[0]
            self._check(length, begun)
            if LENGTH_BYTES + length > self._part_bytes:
                return None
            self._cut(begun)  # it was too large when it came, and no longer is
        frame = self._whole[0]
        if len(frame) > self.frame_bytes_max:
            self._check(len(frame), len(frame).to_bytes(LENGTH_BYTES) + frame)
        del self._whole[0]
        self.buffered -= LENGTH_BYTES + len(frame)
        return frame

    def _cut(self, arrived: memoryview) -> None:
        """Take out the frames that are whole, and keep what is behind them."""
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
        """Keep the beginning of a frame, with room for what is missing if where bytes land is too little for it."""
        self._part_bytes = len(rest)
        length: int = _read_length(rest)[0] if len(rest) >= LENGTH_BYTES else 0
        self._gathers = not 0 <= length <= min(RECEIVE_BUFFER_FRAME_BYTES_MAX, self.frame_bytes_max)
        if self._gathers:
            self._gather(rest)
        else:
            self._part = bytearray(rest)

    def _gather(self, begun: memoryview) -> None:
        """Move what has come of a large frame into a new buffer with more room.

        Never a resized one: the caller of `get_buffer` may still hold a view of the old.
        """
        length: int = _read_length(begun)[0]
        whole = LENGTH_BYTES + max(0, min(length, self.frame_bytes_max))
        believed = max(len(begun) * 2, BUFFER_BYTES, min(self._before + LENGTH_BYTES, READ_BYTES_MAX))
        room = believed if whole <= len(begun) else min(believed, whole)
        larger = bytearray(room + ROOM_BYTES)
        larger[: len(begun)] = begun
        self._part = larger

    def _check(self, length: int, begun: Buffer) -> None:
        """Raises DecodeError if no frame may be this long."""
        if not 0 <= length <= self.frame_bytes_max:
            raise DecodeError(
                f"frame of {length} bytes, allowed are 0 to {self.frame_bytes_max}{_foreign(begun)}",
                buffer=begun,
                part="length",
            )


def _foreign(begun: Buffer) -> str:
    """What the peer speaks, if the first bytes of its frame are known from elsewhere."""
    begin = bytes(begun[:LENGTH_BYTES])
    return next((f": {what}" for head, what in FOREIGN.items() if begin.startswith(head)), "")
