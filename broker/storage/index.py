"""The sparse indexes of a segment: offset to file position, and time to offset.

Both are sorted arrays with an entry every `index.interval.bytes`; between two entries the segment walks batch headers.
The bytes are Kafka's (`OffsetIndex`, `TimeIndex`): big-endian pairs of (offset - base, position) and (timestamp, offset
- base). What an entry promises:

    offset index   the batch that ends with `offset` starts at `position`
    time index     no record up to and including `offset` is later than `timestamp`
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class OffsetIndex:
    """From offsets to positions in one segment file."""

    __slots__ = ("_base_offset", "_positions", "_relative_offsets")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._relative_offsets = array("I")
        self._positions = array("I")

    def __len__(self) -> int:
        return len(self._positions)

    def append(self, offset: int, position: int) -> None:
        """Remember that the batch ending with `offset` starts at `position`; both grow from entry to entry."""
        self._relative_offsets.append(offset - self._base_offset)
        self._positions.append(position)

    def position_before(self, offset: int) -> int:
        """Where to start walking towards the batch that contains an offset."""
        slot = bisect_right(self._relative_offsets, offset - self._base_offset)
        return self._positions[slot - 1] if slot else 0

    def batch_start_before(self, position: int) -> int:
        """The last known start of a batch that is not behind a position."""
        slot = bisect_right(self._positions, position)
        return self._positions[slot - 1] if slot else 0

    def truncate(self, position: int) -> None:
        """Forget all batches that start at or behind a position."""
        slot = bisect_left(self._positions, position)
        del self._relative_offsets[slot:]
        del self._positions[slot:]

    def to_bytes(self) -> bytes:
        """The content of the `.index` file."""
        pairs = zip(self._relative_offsets, self._positions, strict=True)
        return b"".join(struct.pack(">II", relative, position) for relative, position in pairs)


class TimeIndex:
    """From timestamps to offsets in one segment."""

    __slots__ = ("_base_offset", "_relative_offsets", "_timestamps")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._timestamps = array("q")
        self._relative_offsets = array("I")

    def __len__(self) -> int:
        return len(self._timestamps)

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Remember the latest timestamp up to an offset; ignored unless it is later than the last one."""
        if not self._timestamps or timestamp_ms > self._timestamps[-1]:
            self._timestamps.append(timestamp_ms)
            self._relative_offsets.append(offset - self._base_offset)

    def offset_before(self, timestamp_ms: int) -> int:
        """An offset at or before the first record that is as late as a timestamp."""
        slot = bisect_left(self._timestamps, timestamp_ms)
        return self._base_offset + (self._relative_offsets[slot - 1] if slot else 0)

    def truncate(self, offset: int) -> None:
        """Forget entries at or behind an offset."""
        slot = bisect_left(self._relative_offsets, offset - self._base_offset)
        del self._relative_offsets[slot:]
        del self._timestamps[slot:]

    def to_bytes(self) -> bytes:
        """The content of the `.timeindex` file."""
        pairs = zip(self._timestamps, self._relative_offsets, strict=True)
        return b"".join(struct.pack(">qI", timestamp, relative) for timestamp, relative in pairs)
