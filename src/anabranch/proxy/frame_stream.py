"""Cuts a byte stream into frames. Pure.

Most frames only pass, in whatever pieces they arrive; others are collected whole. Memory grows only with received
bytes, not with a frame's stated length. A passing frame is never held, however large it is.
"""

from __future__ import annotations

import struct
from typing import Final

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.framing import FOREIGN
from anabranch.protocol.varint import Buffer

LENGTH_BYTES: Final = 4
BELIEVABLE_BYTES: Final = 1 << 28
"""Longer frames are checked for other protocols, whose first bytes look like a length."""
NOTHING: Final = b""

_read_length = struct.Struct(">i").unpack_from


class FrameStream:
    """One direction of one connection.

    `next_message` returns where the next message begins and ends. Then call either `let_pass` and `passing` until it is
    over, or `gather` and `take_gathered`. `take_passed` returns the bytes that passed since its last call.
    """

    __slots__ = ("_at", "_buffer", "_gathering", "_missing", "_passed_from", "_passing", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        """The maximum size of a collected frame."""
        self._buffer: Buffer = NOTHING
        self._at = 0
        self._passed_from = 0
        self._passing = 0
        """How many bytes of the passing frame are still to come."""
        self._gathering: list[Buffer] | None = None
        self._missing = 0

    @property
    def held_bytes(self) -> int:
        """The number of bytes held here."""
        gathered = 0 if self._gathering is None else sum(map(len, self._gathering))
        return len(self._buffer) - self._at + gathered

    @property
    def missing_bytes(self) -> int:
        """The number of missing bytes of the collected frame."""
        return self._missing

    def feed(self, data: bytes) -> None:
        """Add received bytes. Call `take_passed` before."""
        assert self._passed_from == self._at, "what has passed is taken before more comes"
        if self._missing and self._gathering is not None:
            mine = data[: self._missing]
            self._gathering.append(mine)
            self._missing -= len(mine)
            data = data[len(mine) :]
            if not data:
                return
        left = len(self._buffer) - self._at
        self._buffer = data if not left else bytes(self._buffer[self._at :]) + data
        self._at = self._passed_from = 0

    def next_message(self) -> tuple[Buffer, int, int] | None:
        """The buffer, and where the next message begins and ends; None until its length has arrived.

        Raises DecodeError for an impossible length.
        """
        if len(self._buffer) - self._at < LENGTH_BYTES:
            return None
        length: int = _read_length(self._buffer, self._at)[0]
        if length < 0 or (length > BELIEVABLE_BYTES and self._foreign()):
            raise DecodeError(f"frame of {length} bytes{self._foreign()}", buffer=self._buffer, position=self._at)
        first = self._at + LENGTH_BYTES
        return self._buffer, first, first + length

    def let_pass(self) -> None:
        """Let the next frame pass."""
        self._passing = LENGTH_BYTES + int(_read_length(self._buffer, self._at)[0])

    def passing(self) -> bool:
        """Pass on the received part of the passing frame; returns whether more of it is to come."""
        step = min(self._passing, len(self._buffer) - self._at)
        self._passing -= step
        self._at += step
        return self._passing > 0

    def take_passed(self) -> Buffer:
        """Return the bytes that have passed."""
        start, self._passed_from = self._passed_from, self._at
        if start == self._at:
            return NOTHING
        if start == 0 and self._at == len(self._buffer):
            passed, self._buffer = self._buffer, NOTHING
            self._at = self._passed_from = 0
            return passed
        return memoryview(self._buffer)[start : self._at]

    def gather(self) -> None:
        """Collect the next frame. Call `take_passed` before. Raises DecodeError if the frame is too large."""
        assert self._passed_from == self._at
        length: int = _read_length(self._buffer, self._at)[0]
        if length > self.frame_bytes_max:
            raise DecodeError(
                f"frame of {length} bytes, allowed are {self.frame_bytes_max}", buffer=self._buffer, position=self._at
            )
        first = self._at + LENGTH_BYTES
        here = memoryview(self._buffer)[first : first + length]
        self._gathering = [bytes(here)]
        self._missing = length - len(here)
        self._at = self._passed_from = first + len(here)
        if self._at == len(self._buffer):
            self._buffer, self._at, self._passed_from = NOTHING, 0, 0

    def give_back(self) -> bytes:
        """Return all received bytes unread: they are no frames."""
        unread, self._buffer = bytes(self._buffer), NOTHING
        return unread

    @property
    def is_gathering(self) -> bool:
        """Whether a frame is being collected."""
        return self._gathering is not None

    def take_gathered(self) -> bytes | None:
        """The collected frame, without its length; None until it is complete."""
        if self._missing or self._gathering is None:
            return None
        parts, self._gathering = self._gathering, None
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def _foreign(self) -> str:
        """The name of the peer's protocol, if the first bytes are those of a known one."""
        begin = bytes(self._buffer[self._at : self._at + LENGTH_BYTES])
        return next((f": {what}" for head, what in FOREIGN.items() if begin.startswith(head)), "")
