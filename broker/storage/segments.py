"""The list of a log's segments: find, read, search and delete them by offset and time.

Invariant: there is always an active segment, the last one, and only it grows; base offsets grow; a segment holds the
offsets from its own base up to the next base.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from anabranch.broker.storage.files import Files
from anabranch.broker.storage.log_settings import INT64_MAX, UNLIMITED, LogSettings
from anabranch.broker.storage.segment import Segment
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import BatchHeader
from anabranch.protocol.records.record import AT_ONCE, RecordReader

LATEST: Final = -1
EARLIEST: Final = -2


class TimestampedOffset(NamedTuple):
    """The result of a search by time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def iter_search(
    reader: RecordReader, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> Iterator[TimestampedOffset | None]:
    """Yield the first record of a batch at or after a timestamp, and None after every few records before it.

    Raises DecodeError during iteration.
    """
    last = header.last_offset
    while reader.left:
        columns = reader.read(AT_ONCE)
        for offset, at_ms in zip(columns.offsets, columns.timestamps_ms, strict=True):
            if timestamp_ms <= at_ms <= INT64_MAX and start_offset <= offset <= last:
                yield TimestampedOffset(at_ms, offset, header.partition_leader_epoch)
                return
        yield None


def first_of_unreadable(header: BatchHeader, start_offset: int) -> TimestampedOffset:
    """Return the first offset of an unreadable batch: a reader that starts there misses no matching record."""
    offset = max(header.base_offset, start_offset)
    return TimestampedOffset(header.max_timestamp, offset, header.partition_leader_epoch)


class Segments:
    """A sorted list of segments."""

    __slots__ = ("_bases", "_directory", "_files", "_segments", "removals")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self.removals = 0
        """Count of removals, by which code that works in steps detects that batches were removed between them."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def active(self) -> Segment:
        """Return the segment that grows."""
        return self._segments[-1]

    @property
    def first_offset(self) -> int:
        """Return the base offset of the oldest segment."""
        return self._bases[0]

    @property
    def size_bytes(self) -> int:
        """Return the size of all batches."""
        return sum(segment.file.size_bytes for segment in self._segments)

    def add(self, base_offset: int, now_ms: int, *, late: bool = False) -> Segment:
        """Add a segment; the one before is unchanged. `late`: the first append may create its file."""
        segment = Segment(self._files, self._directory, base_offset, now_ms, late=late)
        self._segments.append(segment)
        self._bases.append(base_offset)
        return segment

    def forget_last(self) -> None:
        """Undo the last `add`; the file stays."""
        self._segments.pop().close()
        self._bases.pop()

    def index(self, segment: Segment) -> int:
        """Return a segment's position in the list."""
        return self._segments.index(segment)

    def ends(self, log_end: int) -> list[int]:
        """Return the end offset of each segment: the next base, or the log end for the last segment."""
        return [*self._bases[1:], log_end] if self._bases else []

    def sealed_segments(self) -> Iterator[tuple[Segment, int]]:
        """Return every segment except the active one, with its end offset."""
        return zip(self._segments, self._bases[1:], strict=False)

    def starts(self, timestamp_ms: int, log_start: int, log_end: int, now_ms: int) -> list[int]:
        """Return the starts of segments that are not newer than a time, newest first, for ListOffsets v0.

        The time -1 selects all segments, -2 only the first one.
        """
        starts = [max(base, log_start) for base in self._bases]
        if timestamp_ms == EARLIEST:
            return starts[:1]
        ages = [segment.written_ms for segment in self._segments]
        if self.active.file.size_bytes:
            starts.append(log_end)
            ages.append(now_ms)
        while starts and timestamp_ms != LATEST and ages[len(starts) - 1] > timestamp_ms:
            starts.pop()
        return starts[::-1]

    def replace(self, count: int, first: int, new: Segment) -> None:
        """Replace `count` segments from index `first` by one with the base offset of the first."""
        self._segments[first : first + count] = [new]
        self._bases[first : first + count] = [new.base_offset]

    def read(self, offset: int, max_bytes: int, limit: int, log_end: int, min_one_batch: bool) -> bytes:
        """Read batches of one segment from the one that holds `offset` up to `limit`, exclusive; offset < limit."""
        slot = bisect_right(self._bases, offset) - 1
        last = len(self._segments) - 1
        while True:
            segment = self._segments[slot]
            segment_end = log_end if slot == last else self._bases[slot + 1]
            inside = limit < segment_end
            data = segment.read(
                offset,
                max_bytes,
                stop=segment.position_of(limit) if inside else segment.file.size_bytes,
                stop_offset=limit if inside else segment_end,
                min_one_batch=min_one_batch,
            )
            if data or inside or slot == last or segment.position_of(offset) < segment.file.size_bytes:
                return data
            slot += 1  # compaction has removed the last batches of this segment

    def is_empty_between(self, offset: int, limit: int, log_end: int) -> bool:
        """Check whether compaction has left no batch from `offset` up to `limit`, exclusive."""
        first, last = bisect_right(self._bases, offset) - 1, bisect_right(self._bases, limit - 1)
        for segment, end in zip(self._segments[first:last], self.ends(log_end)[first:last], strict=True):
            stop = segment.position_of(limit) if limit < end else segment.file.size_bytes
            if segment.position_of(offset) < stop:
                return False
        return True

    def holding(self, offset: int) -> Segment:
        """Return the segment that holds an offset from the log's start on."""
        return self._segments[bisect_right(self._bases, offset) - 1]

    def is_older(self, offset: int, than: int) -> bool:
        """Return whether an offset is in an older segment than another one."""
        return bisect_right(self._bases, offset) < bisect_right(self._bases, than)

    def search(self, timestamp_ms: int, start_offset: int) -> TimestampedOffset | None:
        """Return the first record from an offset on whose timestamp is at least `timestamp_ms`."""
        for header, batch in self.batches_with(timestamp_ms, start_offset):
            try:
                steps = iter_search(RecordReader(batch, headers_max=0), header, timestamp_ms, start_offset)
                found = next((one for one in steps if one is not None), None)
            except DecodeError:
                found = first_of_unreadable(header, start_offset)
            if found is not None:
                return found
        return None

    def batches_with(self, timestamp_ms: int, start_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield the batches that may hold a record at or after a timestamp and an offset, oldest first."""
        for segment in self._segments:
            if segment.indexes.max_timestamp_ms < timestamp_ms:
                continue
            start = segment.position_of(segment.indexes.times.offset_before(timestamp_ms))
            for position, header in segment.headers(start):
                if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                    continue
                yield header, segment.read_batch(position, header)

    def count_expired(self, settings: LogSettings, now_ms: int, *, log_end: int, bound: int) -> int:
        """Return how many of the oldest segments exceed retention time or size; none that end after `bound`.

        A segment that compaction has emptied has no time: it expires with the next one. An empty active one stays.
        """
        expired = 0
        keep_all = settings.retention_bytes == UNLIMITED
        surplus = -1 if keep_all else self.size_bytes - settings.retention_bytes
        for count, (segment, end) in enumerate(zip(self._segments, self.ends(log_end), strict=True)):
            if end > bound:
                break
            size_bytes = segment.file.size_bytes
            if not size_bytes:
                continue
            too_old = settings.retention_ms != UNLIMITED and now_ms - segment.written_ms > settings.retention_ms
            surplus -= size_bytes  # a segment expires if the rest still fills retention.bytes
            if not (too_old or surplus >= 0):
                break
            expired = count + 1
        return expired

    def base_after(self, count: int) -> int:
        """Return the base offset after `count` of the oldest segments are deleted."""
        return self._bases[count]

    def drop_below(self, offset: int) -> int:
        """Delete the segments that end at or below an offset; return their number."""
        count = bisect_right(self._bases, offset) - 1
        self._drop(0, count)
        return count

    def drop_above(self, offset: int) -> None:
        """Delete the segments that begin after an offset."""
        self._drop(bisect_right(self._bases, offset), len(self._bases), newest_first=True)

    def drop_all(self) -> None:
        """Delete every segment; the caller must add one immediately."""
        self._drop(0, len(self._bases), newest_first=True)

    def close(self) -> None:
        """Close all files."""
        for segment in self._segments:
            segment.close()

    def _drop(self, first: int, last: int, *, newest_first: bool = False) -> None:
        """Delete segments one by one from the outer side, so that a crash leaves no gap between segments."""
        for _ in range(last - first):
            slot = last - 1 if newest_first else first
            self._segments[slot].delete()
            del self._segments[slot]
            del self._bases[slot]
            last -= 1
            self.removals += 1
