"""One segment of a partition log: a file of batches from a base offset on, with its index files.

Names are Kafka's: `<20-digit base offset>.log`, `.index`, `.timeindex`, and `.txnindex` for aborted transactions.
`SegmentIndexes` keeps the first two indexes in memory; all are written when the segment is sealed. `load` opens a
sealed segment and checks only its end; `recover` scans it, rebuilds the indexes and truncates it at a torn write or a
flipped bit.

Invariants: batches have no gaps between them in the file, and offsets grow. A segment that was loaded, not scanned, is
verified at its first read: batches with a wrong checksum are never served. A read ends before such a batch; a read that
begins there fails with CORRUPT_MESSAGE. Source: Kafka's `LogSegment`.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from anabranch.broker.storage.aborted_transactions import AbortedTransaction, decode_aborted_within, encode_aborted
from anabranch.broker.storage.batch_validity import valid_headers, valid_prefix
from anabranch.broker.storage.deferred_file import create_or_defer
from anabranch.broker.storage.files import File, Files
from anabranch.broker.storage.index import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.lost_batch_search import contains_batch
from anabranch.broker.storage.segment_indexes import SegmentIndexes, proven_end
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    check_crc,
    read_header,
)

log = logging.getLogger(__name__)

SUFFIXES: Final = ("index", "timeindex", "txnindex", "log")
"""The files of a segment. The log is renamed last, so it never exists without its indexes."""
_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
_WALK_BYTES: Final = 8 * 1024
_BOUNDARIES_REMEMBERED: Final = 16
_SPAN: Final = struct.Struct(">qi11xi")  # base offset, length and last offset delta


def segment_path(directory: str, base_offset: int, suffix: str = "log", stage: str = "") -> str:
    """Return the path of a segment's file; `stage` is ".cleaned" or ".swap" during compaction."""
    return f"{directory}/{base_offset:020d}.{suffix}{stage}"


class Segment:
    """A file of batches with its indexes; only the last segment of a log grows."""

    __slots__ = (
        "_boundaries",
        "_damaged",
        "_directory",
        "_files",
        "_sealed_bytes",
        "_stage",
        "base_offset",
        "created_ms",
        "file",
        "held_more",
        "indexes",
        "replaced",
        "verified_bytes",
    )

    def __init__(
        self, files: Files, directory: str, base_offset: int, created_ms: int, stage: str = "", *, late: bool = False
    ) -> None:
        """`late`: if the disk refuses to create the file now, create it with the first append."""
        self._files = files
        self._directory = directory
        self._stage = stage
        self._damaged = False
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.replaced: list[Segment] | None = None
        """Segments whose files are in the way of this one, a compacted copy of them; None if it has its final name."""
        self.file: File = create_or_defer(self._make_file) if late else self._make_file()
        self._reset()

    def __repr__(self) -> str:
        return f"<segment {self.base_offset} of {self._directory}, {self.file.size_bytes} bytes>"

    def _make_file(self) -> File:
        self.file = self._files.open(self._path("log"))
        return self.file

    def _reset(self) -> None:
        self.indexes = SegmentIndexes(self.base_offset)
        # Cache of the last batch boundaries: readers continue where they stopped, and the high watermark is recent.
        self._boundaries: dict[int, int] = {}
        self.verified_bytes = 0
        """The bytes up to here were written or verified by this process."""
        self._sealed_bytes = -1
        self.held_more = False  # whether `recover` has removed complete batches, not only a torn end

    # --------------------------------------------------------------------------------------------------------- writing

    def is_full(
        self, last_offset: int, size_bytes: int, max_timestamp_ms: int, settings: LogSettings, now_ms: int
    ) -> bool:
        """Check whether a batch needs a new segment: by size, offset range, index size, or age.

        The age is measured by record timestamps, or by the broker's clock if there are none. An empty segment accepts
        every batch in its range of offsets.
        """
        filled_bytes = self.file.size_bytes
        if not filled_bytes:
            return last_offset - self.base_offset > RELATIVE_OFFSET_MAX
        indexes = self.indexes
        if indexes.first_timestamp_ms != NO_TIMESTAMP and max_timestamp_ms != NO_TIMESTAMP:
            age_ms = max_timestamp_ms - indexes.first_timestamp_ms
        else:
            age_ms = now_ms - self.created_ms
        return (
            filled_bytes + size_bytes > settings.segment_bytes
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or indexes.offsets.size_bytes >= settings.segment_index_bytes
            or age_ms > settings.roll_ms
        )

    def takes_run(
        self, headers: Sequence[BatchHeader], size_bytes: int, max_timestamp_ms: int, settings: LogSettings, now_ms: int
    ) -> bool:
        """Check by bounds on the rules of `is_full` that none of several batches needs a new segment.

        The bounds are cautious: each batch may add an index entry, and both kinds of age count.
        """
        return (
            self.file.size_bytes + size_bytes <= settings.segment_bytes
            and headers[-1].last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            and self.indexes.offsets.size_bytes + OFFSET_ENTRY_BYTES * len(headers) <= settings.segment_index_bytes
            and max_timestamp_ms - self.indexes.first_timestamp_ms <= settings.roll_ms
            and now_ms - self.created_ms <= settings.roll_ms
        )

    @property
    def written_ms(self) -> int:
        """Return the latest record timestamp, or the segment's creation time if the records have none."""
        latest_ms = self.indexes.max_timestamp_ms
        return latest_ms if latest_ms != NO_TIMESTAMP else self.created_ms

    def append(
        self, *chunks: Buffer, last_offset: int, size_bytes: int, max_timestamp_ms: int, index_interval_bytes: int
    ) -> None:
        """Append a batch that already has its offset. Raises OSError, and then the segment is unchanged."""
        position = self.file.size_bytes
        self.file.append(*chunks)
        if self.verified_bytes == position:
            self.verified_bytes = position + size_bytes
        self.indexes.add(last_offset, position, size_bytes, max_timestamp_ms, index_interval_bytes)
        self._remember(last_offset + 1, position + size_bytes)

    def append_run(self, batches: Buffer, headers: Sequence[BatchHeader], index_interval_bytes: int) -> None:
        """Append several batches with one write. Raises OSError, and then the segment is unchanged."""
        position = self.file.size_bytes
        self.file.append(batches)
        if self.verified_bytes == position:
            self.verified_bytes = self.file.size_bytes
        for header in headers:
            last_offset = header.base_offset + header.last_offset_delta
            size_bytes = LOG_OVERHEAD_BYTES + header.batch_length
            self.indexes.add(last_offset, position, size_bytes, header.max_timestamp, index_interval_bytes)
            position += size_bytes
            self._remember(last_offset + 1, position)

    def _remember(self, offset: int, position: int) -> None:
        boundaries = self._boundaries
        boundaries[offset] = position
        if len(boundaries) > _BOUNDARIES_REMEMBERED:
            del boundaries[next(iter(boundaries))]

    # --------------------------------------------------------------------------------------------------------- reading

    def position_of(self, offset: int) -> int:
        """Return the position of the first batch that ends at or after an offset; the file's size if there is none."""
        if offset <= self.base_offset:
            return 0
        position = self._boundaries.get(offset)
        if position is not None:
            return position
        return self._walk(self.indexes.offsets.position_before(offset), offset)

    def _walk(self, position: int, offset: int) -> int:
        indexed = position
        while position < self.file.size_bytes:
            window = self.file.read(position, _WALK_BYTES)
            inside, last = 0, len(window) - _SPAN.size
            if last < 0:
                raise self._corrupt(position, "the file ends inside a batch")
            while inside <= last:
                base_offset, length, last_delta = _SPAN.unpack_from(window, inside)
                if base_offset + last_delta >= offset:
                    if indexed and position + inside == indexed and base_offset > offset:
                        return self._walk(0, offset)  # a damaged index names a later batch: readers would skip some
                    return position + inside
                if length < _LENGTH_MIN:
                    raise self._corrupt(position + inside, f"a batch of {length} bytes")
                inside += LOG_OVERHEAD_BYTES + length
            position += inside
        return position

    def read(self, offset: int, max_bytes: int, *, stop: int, stop_offset: int, min_one_batch: bool) -> bytes:
        """Read whole batches from the one that holds `offset`, up to `max_bytes` and the boundary at `stop`."""
        start = self.position_of(offset)
        if start >= stop:
            return b""
        if stop - start <= max_bytes:
            self._remember(stop_offset, stop)
            return self._verify(start, self.file.read(start, stop - start), stop - start, stop_offset)
        data = self.file.read(start, max_bytes + HEADER_BYTES)  # including the next batch's header
        whole = self._whole_batches(data, start, max_bytes)
        if not whole and min_one_batch:
            whole = read_header(data).size_bytes
            if whole > stop - start:
                raise self._corrupt(start, f"a batch of {whole} bytes")
            data = self.file.read(start, whole)
        return self._verify(start, data[:whole], whole, stop_offset)

    def _verify(self, start: int, data: bytes, size_bytes: int, end_offset: int) -> bytes:
        """Return the bytes read at a position, up to the first corrupt batch."""
        if len(data) == size_bytes and start + size_bytes <= self.verified_bytes:
            return data
        sound, damage = valid_prefix(data, self.base_offset, end_offset)
        if sound != size_bytes:
            error = self._corrupt(start + sound, damage or f"{len(data) - sound} bytes of an incomplete batch")
            if not sound:
                raise error
        if start <= self.verified_bytes:
            self.verified_bytes = start + sound
        return data[:sound]

    def _corrupt(self, position: int, reason: str) -> KafkaError:
        path = segment_path(self._directory, self.base_offset)
        if not self._damaged:
            log.error("%s is damaged at byte %d; the batches there are not served: %s", path, position, reason)
            self._damaged = True
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path} at byte {position}: {reason}")

    def _whole_batches(self, data: bytes, start: int, max_bytes: int) -> int:
        """Return the number of bytes of `data`, read from `start`, that are whole batches."""
        inside = max(0, self.indexes.offsets.batch_start_before(start + max_bytes) - start)
        next_offset, last = -1, len(data) - _SPAN.size
        while inside <= last:
            base_offset, length, last_delta = _SPAN.unpack_from(data, inside)
            if inside + LOG_OVERHEAD_BYTES + length > max_bytes:
                next_offset = base_offset if next_offset < 0 else next_offset
                break
            if length < _LENGTH_MIN:
                if not inside:
                    raise self._corrupt(start, f"a batch of {length} bytes")
                break
            inside += LOG_OVERHEAD_BYTES + length
            next_offset = base_offset + last_delta + 1
        if next_offset >= 0:
            self._remember(next_offset, start + inside)
        return inside

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Return an iterator over position and header of every batch, up to the first invalid header."""
        return valid_headers(self.file, self.base_offset, position)

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """Return the bytes of one batch."""
        return self.file.read(position, header.size_bytes)

    # --------------------------------------------------------------------------------------- recovery, truncation, end

    def load(self) -> int | None:
        """Load a sealed segment with its indexes; return the offset after its last batch.

        Return None if file and indexes do not match; then `recover` must scan. Only batches after the last index entry
        are parsed: this detects a lost end, while other damage is detected by reads.
        """
        self._reset()
        try:
            self.indexes = SegmentIndexes.decode(self.base_offset, self._read("index"), self._read("timeindex"))
        except ValueError:
            return None
        size_bytes = self.file.size_bytes
        start = position = self.indexes.offsets.last_position
        next_offset = self.base_offset
        for batch_position, header in self.headers(start):
            position = batch_position + header.size_bytes
            next_offset = header.next_offset
        if position != size_bytes or (size_bytes and next_offset == self.base_offset):
            return None
        if self.indexes.end > max(self.base_offset, next_offset):
            return None
        self.indexes.bytes_since_entry = size_bytes - start
        self._sealed_bytes = size_bytes
        first = self.file.read(0, HEADER_BYTES)
        self.indexes.first_timestamp_ms = read_header(first).max_timestamp if first else NO_TIMESTAMP
        return next_offset

    def promised_end(self, limit: int) -> int:
        """Return the end offset that the index files prove for the sealed segment; at most `limit`, the next base."""
        return proven_end(self.base_offset, self._read("index"), self._read("timeindex"), limit)

    def load_aborted(self, end_offset: int) -> list[AbortedTransaction]:
        """Read the aborted transactions that ended in this segment, as `seal` wrote them. Raises ValueError."""
        return decode_aborted_within(self._read("txnindex"), self.base_offset, end_offset)

    def recover(
        self, *, index_interval_bytes: int, limit_offset: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Rebuild the indexes, truncate the file at the first invalid batch, and yield the batches before it.

        `limit_offset` is the base of the next segment: batches from there on were truncated before that segment began,
        and a power failure restored them. The file is truncated at the end of the iteration.
        """
        self._reset()
        end = 0
        for position, header in self.headers():
            if limit_offset is not None and header.base_offset >= limit_offset:
                break
            if not check_crc(self.read_batch(position, header), 0, header):
                self.held_more = True
                break
            self.indexes.add(
                header.last_offset, position, header.size_bytes, header.max_timestamp, index_interval_bytes
            )
            end = position + header.size_bytes
            yield position, header
        else:
            self.held_more = contains_batch(self.file, end)
        self.file.truncate(end)
        self.verified_bytes = end

    def truncate(self, position: int, offset: int) -> None:
        """Remove all batches from a position on; `offset` is the offset of the first one."""
        self.file.truncate(position)
        self._sealed_bytes = -1
        self._boundaries.clear()
        self.verified_bytes = min(self.verified_bytes, position)
        if not position:
            self._reset()
            return
        self.indexes.truncate(position, offset)
        for _, header in self.headers(self.indexes.offsets.last_position):
            self.indexes.add_timestamp(header.max_timestamp, header.last_offset)

    def seal(self, aborted: Sequence[AbortedTransaction] = (), *, flushed: bool = False) -> tuple[str, ...]:
        """Write the indexes after the last append, and return their paths.

        `aborted`: the aborted transactions that ended in this segment. Without `flushed`, the caller flushes the
        indexes before the recovery point moves past this segment, because `load` then trusts them.
        """
        indexes = self.indexes
        if self.file.size_bytes:
            indexes.times.append(indexes.max_timestamp_ms, indexes.max_timestamp_offset)
        contents = {
            self._path("index"): indexes.offsets.to_bytes(),
            self._path("timeindex"): indexes.times.to_bytes(),
            # Written even if it is empty, to tell an empty index from a lost one.
            self._path("txnindex"): encode_aborted(aborted),
        }
        for path, content in contents.items():
            self._files.write_file(path, content, flushed=flushed)
        self._sealed_bytes = self.file.size_bytes
        return tuple(contents)

    @property
    def is_sealed(self) -> bool:
        """Check whether the index files belong to the present content."""
        return self._sealed_bytes == self.file.size_bytes

    def rename(self, stage: str) -> None:
        """Rename all files to another stage, the log last: a log without a stage, or in `.swap`, is complete."""
        self.close()
        for suffix in SUFFIXES:
            path = self._path(suffix)
            if self._files.exists(path):
                self._files.rename(path, segment_path(self._directory, self.base_offset, suffix, stage))
        self._stage = stage
        self._make_file()

    def finish_replacement(self) -> None:
        """Delete the segments that this one replaces, and take their name. Raises OSError; then it may be repeated."""
        if self.replaced is not None:
            self._delete_replaced()
            self.rename("")
            self.replaced = None

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def delete(self) -> None:
        """Delete the segment's files, the log first: the loader deletes indexes without a log."""
        self._delete_replaced()
        self.close()
        for suffix in reversed(SUFFIXES):
            self._files.remove(self._path(suffix))

    def _delete_replaced(self) -> None:
        while self.replaced:
            self.replaced[-1].delete()
            self.replaced.pop()

    def _path(self, suffix: str) -> str:
        return segment_path(self._directory, self.base_offset, suffix, self._stage)

    def _read(self, suffix: str) -> bytes | None:
        return self._files.read_file(self._path(suffix))
