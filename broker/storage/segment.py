"""One segment of a partition log: a file of batches from a base offset on, and the sparse indexes into it.

Names are Kafka's: `<20-digit base offset>.log`, `.index`, `.timeindex`. The indexes live in memory, are rebuilt from
batch headers when the log is opened, and are written when the segment is sealed, for Kafka's own tools to read.

Invariants: batches follow one another without a gap in the file and with growing offsets; an entry of an index always
names a batch that is there. What breaks them on disk (a torn write, a flipped bit) is cut off by `recover`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from broker.storage.files import File, Files
from broker.storage.index import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from protocol.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    check_crc,
    read_header,
)

_SCAN_BYTES: Final = 64 * 1024
_WALK_BYTES: Final = 8 * 1024
_BOUNDARIES_REMEMBERED: Final = 16

_SPAN: Final = struct.Struct(">qi11xi")  # base offset, length and last offset delta: all that a walk needs


def segment_path(directory: str, base_offset: int, suffix: str = "log") -> str:
    """The file of a segment."""
    return f"{directory}/{base_offset:020d}.{suffix}"


class Segment:
    """A run of batches in one file; the last segment of a log is the one that grows."""

    __slots__ = (
        "_boundaries",
        "_bytes_since_entry",
        "_directory",
        "_files",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp_ms",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offset_index",
        "time_index",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, created_ms: int) -> None:
        self._files = files
        self._directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.file: File = files.open(segment_path(directory, base_offset))
        self._reset()

    def __repr__(self) -> str:
        return f"<segment {self.base_offset} of {self._directory}, {self.file.size_bytes} bytes>"

    def _reset(self) -> None:
        self.offset_index = OffsetIndex(self.base_offset)
        self.time_index = TimeIndex(self.base_offset)
        self.first_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset
        self._bytes_since_entry = 0
        # Readers come back for the offset where they stopped, and the high watermark stops at a recent batch: the last
        # few boundaries between batches spare nearly all walking.
        self._boundaries: dict[int, int] = {}

    # --------------------------------------------------------------------------------------------------------- writing

    def has_room(self, last_offset: int, size_bytes: int, *, segment_bytes: int, index_bytes: int) -> bool:
        """Whether a batch still fits by size, by offset range and by index size."""
        return (
            self.file.size_bytes + size_bytes <= segment_bytes
            and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            and len(self.offset_index) * OFFSET_ENTRY_BYTES < index_bytes
        ) or not self.file.size_bytes

    def age_ms(self, now_ms: int, timestamp_ms: int) -> int:
        """How old the segment is by the clock of its records, or by ours if they have none."""
        if self.first_timestamp_ms != NO_TIMESTAMP and timestamp_ms != NO_TIMESTAMP:
            return timestamp_ms - self.first_timestamp_ms
        return now_ms - self.created_ms

    def append(
        self, *chunks: Buffer, last_offset: int, size_bytes: int, max_timestamp_ms: int, index_interval_bytes: int
    ) -> None:
        """Add a batch that has its offset already. Raises OSError, and then nothing has been added."""
        position = self.file.size_bytes
        self.file.append(*chunks)
        self._note(last_offset, position, size_bytes, max_timestamp_ms, index_interval_bytes)
        self._remember(last_offset + 1, position + size_bytes)

    def _note(
        self, last_offset: int, position: int, size_bytes: int, max_timestamp_ms: int, index_interval_bytes: int
    ) -> None:
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if self.first_timestamp_ms == NO_TIMESTAMP:
            self.first_timestamp_ms = max_timestamp_ms
        if self._bytes_since_entry > index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    def _remember(self, offset: int, position: int) -> None:
        boundaries = self._boundaries
        boundaries[offset] = position
        if len(boundaries) > _BOUNDARIES_REMEMBERED:
            del boundaries[next(iter(boundaries))]

    # --------------------------------------------------------------------------------------------------------- reading

    def position_of(self, offset: int) -> int:
        """Where the first batch starts that ends at or after an offset; the file's size if there is none."""
        if offset <= self.base_offset:
            return 0
        position = self._boundaries.get(offset)
        if position is not None:
            return position
        return self._walk(self.offset_index.position_before(offset), offset)

    def _walk(self, position: int, offset: int) -> int:
        while position < self.file.size_bytes:
            window = self.file.read(position, _WALK_BYTES)
            inside, last = 0, len(window) - _SPAN.size
            while inside <= last:
                base_offset, length, last_delta = _SPAN.unpack_from(window, inside)
                if base_offset + last_delta >= offset:
                    return position + inside
                inside += LOG_OVERHEAD_BYTES + length
            position += inside
        return position

    def read(self, offset: int, max_bytes: int, *, stop: int, stop_offset: int, min_one_batch: bool) -> bytes:
        """Whole batches from the one that holds `offset` on, up to `max_bytes` and the boundary at position `stop`."""
        start = self.position_of(offset)
        if start >= stop:
            return b""
        if stop - start <= max_bytes:
            self._remember(stop_offset, stop)
            return self.file.read(start, stop - start)
        data = self.file.read(start, max_bytes + HEADER_BYTES)  # with a look at the batch behind
        whole = self._whole_batches(data, start, max_bytes)
        if not whole and min_one_batch:
            return self.file.read(start, read_header(data).size_bytes)
        return data[:whole]

    def _whole_batches(self, data: bytes, start: int, max_bytes: int) -> int:
        """How many bytes of `data`, read from `start`, are whole batches."""
        inside = max(0, self.offset_index.batch_start_before(start + max_bytes) - start)
        next_offset, last = -1, len(data) - _SPAN.size
        while inside <= last:
            base_offset, length, last_delta = _SPAN.unpack_from(data, inside)
            if inside + LOG_OVERHEAD_BYTES + length > max_bytes:
                next_offset = base_offset if next_offset < 0 else next_offset
                break
            inside += LOG_OVERHEAD_BYTES + length
            next_offset = base_offset + last_delta + 1
        if next_offset >= 0:
            self._remember(next_offset, start + inside)
        return inside

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch, up to the first place that cannot be one."""
        size = self.file.size_bytes
        next_offset = self.base_offset
        window, window_start = b"", 0
        while position + HEADER_BYTES <= size:
            if position + HEADER_BYTES > window_start + len(window) or position < window_start:
                window, window_start = self.file.read(position, _SCAN_BYTES), position
            header = read_header(window, position - window_start)
            sound = (
                header.magic == MAGIC
                and header.batch_length >= HEADER_BYTES - LOG_OVERHEAD_BYTES
                and position + header.size_bytes <= size
                and header.last_offset_delta >= 0
                and header.base_offset >= next_offset
                and header.last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            )
            if not sound:
                return
            yield position, header
            next_offset = header.next_offset
            position += header.size_bytes

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """One batch's bytes."""
        return self.file.read(position, header.size_bytes)

    # --------------------------------------------------------------------------------------- recovery, truncation, end

    def recover(self, *, index_interval_bytes: int, verify: bool) -> Iterator[tuple[int, BatchHeader]]:
        """Rebuild the indexes and cut off what is no batch; yields the batches that stay.

        `verify` also compares checksums: only the segment that was being written can be torn, the others are complete.
        Iterate to the end: the cut is the last step.
        """
        self._reset()
        end = 0
        for position, header in self.headers():
            if verify and not check_crc(self.read_batch(position, header), 0, header):
                break
            self._note(header.last_offset, position, header.size_bytes, header.max_timestamp, index_interval_bytes)
            end = position + header.size_bytes
            yield position, header
        self.file.truncate(end)

    def truncate(self, position: int, *, index_interval_bytes: int) -> None:
        """Drop all batches from a position on."""
        self.file.truncate(position)
        for _ in self.recover(index_interval_bytes=index_interval_bytes, verify=False):
            pass

    def seal(self) -> None:
        """Write the indexes: nothing will be appended any more."""
        self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)
        for suffix, content in (("index", self.offset_index.to_bytes()), ("timeindex", self.time_index.to_bytes())):
            self._files.write_file(segment_path(self._directory, self.base_offset, suffix), content)

    def close(self) -> None:
        """Give back the file."""
        self.file.close()

    def delete(self) -> None:
        """Remove the segment's files."""
        self.close()
        for suffix in ("log", "index", "timeindex"):
            self._files.remove(segment_path(self._directory, self.base_offset, suffix))
