"""The sparse indexes of a segment: offset to file position, and time to offset.

Both are sorted arrays with an entry every `index.interval.bytes`; between two entries the segment parses batch headers.
The format is Kafka's (`OffsetIndex`, `TimeIndex`): big-endian pairs of (offset - base, position) and (timestamp, offset
- base). Meaning of an entry:

    offset index   the batch that ends with `offset` starts at `position`
    time index     no record up to and including `offset` is later than `timestamp`

`from_bytes` raises ValueError for an invalid index; then the segment is scanned.
"""

from __future__ import annotations

import operator
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
_TIME_ENTRY: Final = struct.Struct(">qI")
_LITTLE_ENDIAN: Final = sys.byteorder == "little"


class OffsetIndex:
    """The sparse index from offsets to positions in one segment file."""

    __slots__ = ("_base_offset", "_positions", "_relative_offsets")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._relative_offsets = array("I")
        self._positions = array("I")

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def size_bytes(self) -> int:
        """Return the size of the index as a file."""
        return len(self._positions) * OFFSET_ENTRY_BYTES

    def append(self, offset: int, position: int) -> None:
        """Add the entry of a batch that ends with `offset` and starts at `position`; both grow from entry to entry."""
        self._relative_offsets.append(offset - self._base_offset)
        self._positions.append(position)

    def position_before(self, offset: int) -> int:
        """Return the position from which to parse headers up to the batch that contains an offset."""
        slot = bisect_right(self._relative_offsets, offset - self._base_offset)
        return self._positions[slot - 1] if slot else 0

    def batch_start_before(self, position: int) -> int:
        """Return the last indexed start of a batch at or before a position."""
        slot = bisect_right(self._positions, position)
        return self._positions[slot - 1] if slot else 0

    def truncate(self, position: int) -> None:
        """Remove the entries of batches that start at or after a position."""
        slot = bisect_left(self._positions, position)
        del self._relative_offsets[slot:]
        del self._positions[slot:]

    @property
    def end(self) -> int:
        """Return the offset after the last entry's batch; the base offset if there are no entries."""
        return self._base_offset + (self._relative_offsets[-1] + 1 if self._relative_offsets else 0)

    @property
    def last_position(self) -> int:
        """Return the position of the last entry; 0 if there are no entries."""
        return self._positions[-1] if self._positions else 0

    def to_bytes(self) -> bytes:
        """Encode the content of the `.index` file."""
        words = array("I", bytes(2 * 4 * len(self._positions)))
        words[0::2], words[1::2] = self._relative_offsets, self._positions
        return _big_endian(words).tobytes()

    @classmethod
    def from_bytes(cls, base_offset: int, content: bytes) -> OffsetIndex:
        """Decode the content of an `.index` file. Raises ValueError."""
        if len(content) % OFFSET_ENTRY_BYTES:
            raise ValueError(f"an offset index of {len(content)} bytes")
        words = array("I", content)
        index = cls(base_offset)
        words = _big_endian(words)
        index._relative_offsets, index._positions = words[0::2], words[1::2]
        _check_growing("offsets", index._relative_offsets, strictly=True)
        _check_growing("positions", index._positions, strictly=True)
        return index


class TimeIndex:
    """The sparse index from timestamps to offsets in one segment."""

    __slots__ = ("_base_offset", "_relative_offsets", "_timestamps")

    def __init__(self, base_offset: int) -> None:
        self._base_offset = base_offset
        self._timestamps = array("q")
        self._relative_offsets = array("I")

    def __len__(self) -> int:
        return len(self._timestamps)

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add the latest timestamp up to an offset; ignored if it is not later than the last entry."""
        if not self._timestamps or timestamp_ms > self._timestamps[-1]:
            self._timestamps.append(timestamp_ms)
            self._relative_offsets.append(offset - self._base_offset)

    def offset_before(self, timestamp_ms: int) -> int:
        """Return an offset at or before the first record whose timestamp is at least `timestamp_ms`."""
        slot = bisect_left(self._timestamps, timestamp_ms)
        return self._base_offset + (self._relative_offsets[slot - 1] if slot else 0)

    def truncate(self, offset: int) -> None:
        """Remove the entries at or after an offset."""
        slot = bisect_left(self._relative_offsets, offset - self._base_offset)
        del self._relative_offsets[slot:]
        del self._timestamps[slot:]

    @property
    def end(self) -> int:
        """Return the offset after the last entry's record; the base offset if there are no entries."""
        return self._base_offset + (self._relative_offsets[-1] + 1 if self._relative_offsets else 0)

    @property
    def last(self) -> tuple[int, int]:
        """Return the last timestamp and its offset; (-1, base offset) if there are no entries."""
        if not self._timestamps:
            return -1, self._base_offset
        return self._timestamps[-1], self._base_offset + self._relative_offsets[-1]

    def to_bytes(self) -> bytes:
        """Encode the content of the `.timeindex` file."""
        pairs = zip(self._timestamps, self._relative_offsets, strict=True)
        return b"".join(_TIME_ENTRY.pack(timestamp, relative) for timestamp, relative in pairs)

    @classmethod
    def from_bytes(cls, base_offset: int, content: bytes) -> TimeIndex:
        """Decode the content of a `.timeindex` file. Raises ValueError."""
        if len(content) % TIME_ENTRY_BYTES:
            raise ValueError(f"a time index of {len(content)} bytes")
        index = cls(base_offset)
        for timestamp, relative in _TIME_ENTRY.iter_unpack(content):
            index._timestamps.append(timestamp)
            index._relative_offsets.append(relative)
        _check_growing("timestamps", index._timestamps, strictly=True)
        _check_growing("offsets", index._relative_offsets)
        return index


def _check_growing(what: str, numbers: array[int], *, strictly: bool = False) -> None:
    listed = numbers.tolist()
    if not all(map(operator.lt if strictly else operator.le, listed, listed[1:])):
        raise ValueError(f"an index whose {what} do not increase")


def _big_endian(words: array[int]) -> array[int]:
    if _LITTLE_ENDIAN:
        words.byteswap()
    return words
