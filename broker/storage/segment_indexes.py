"""The indexes of one segment: they grow with its batches, and become files when the segment is sealed.

Decides which batches get an entry: the first one after more than `index.interval.bytes`. Knows the segment's latest
timestamp, which is the last entry of the time index, and the first one, from which the segment's age counts.

Invariants: each offset entry names an existing batch; no record up to a time entry's offset has a later timestamp.
Pure: `Segment` reads and writes the files. Source: Kafka's `LogSegment` (`bytesSinceLastIndexEntry`,
`maxTimestampAndOffsetSoFar`, `rollingBasedTimestamp`).
"""

from __future__ import annotations

from anabranch.broker.storage.index import OffsetIndex, TimeIndex
from anabranch.protocol.records.batch import NO_TIMESTAMP


class SegmentIndexes:
    """The offset index and the time index of one segment, and the state that decides their next entries."""

    __slots__ = (
        "bytes_since_entry",
        "first_timestamp_ms",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offsets",
        "times",
    )

    def __init__(self, base_offset: int) -> None:
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self.first_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.bytes_since_entry = 0

    @classmethod
    def decode(cls, base_offset: int, offsets: bytes | None, times: bytes | None) -> SegmentIndexes:
        """Decode the `.index` and `.timeindex` of a sealed segment; None is a missing file. Raises ValueError.

        The caller parses the batches from the last entry on, and sets the first timestamp and `bytes_since_entry`.
        """
        if offsets is None or times is None:
            raise ValueError("it has no index")
        indexes = cls(base_offset)
        indexes.offsets = OffsetIndex.from_bytes(base_offset, offsets)
        indexes.times = TimeIndex.from_bytes(base_offset, times)
        indexes.max_timestamp_ms, indexes.max_timestamp_offset = indexes.times.last
        return indexes

    def add(self, last_offset: int, position: int, size_bytes: int, max_timestamp_ms: int, interval_bytes: int) -> None:
        """Add the batch at a position, with an entry if more than `interval_bytes` precede it since the last one."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if self.first_timestamp_ms == NO_TIMESTAMP:
            self.first_timestamp_ms = max_timestamp_ms
        if self.bytes_since_entry > interval_bytes:
            self.offsets.append(last_offset, position)
            self.times.append(self.max_timestamp_ms, self.max_timestamp_offset)
            self.bytes_since_entry = 0
        self.bytes_since_entry += size_bytes

    def truncate(self, position: int, offset: int) -> None:
        """Remove the entries of the batches from a position on; `offset` is the offset of the first one.

        The latest timestamp is then that of the last entry: the caller passes the batches behind it to `add_timestamp`.
        """
        self.offsets.truncate(position)
        self.times.truncate(offset)
        self.max_timestamp_ms, self.max_timestamp_offset = self.times.last
        self.bytes_since_entry = position - self.offsets.last_position

    def add_timestamp(self, max_timestamp_ms: int, last_offset: int) -> None:
        """Count the latest timestamp of a batch behind the last entry."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.max_timestamp_offset = max_timestamp_ms, last_offset

    @property
    def end(self) -> int:
        """Return the offset after the last entry of both indexes; the base offset if there are no entries."""
        return max(self.offsets.end, self.times.end)


def proven_end(base_offset: int, offsets: bytes | None, times: bytes | None, limit: int) -> int:
    """Return the end offset that the index files of a sealed segment prove; its base offset if they prove none.

    An index that ends beyond `limit`, the base of the next segment, is itself damaged and is ignored.
    """
    ends = [base_offset]
    kinds: tuple[tuple[bytes | None, type[OffsetIndex] | type[TimeIndex]], ...] = (
        (offsets, OffsetIndex),
        (times, TimeIndex),
    )
    for content, kind in kinds:
        try:
            ends.append(kind.from_bytes(base_offset, content or b"").end)
        except ValueError:
            continue
    return max(end for end in ends if end <= limit)
