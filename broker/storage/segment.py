"""One segment of a partition log: a file of batches from a base offset on, and the sparse indexes into it.

Names are Kafka's: `<20-digit base offset>.log`, `.index`, `.timeindex`, and `.txnindex` for transactions that were
aborted. The indexes live in memory and are written when the segment is sealed. `load` takes a sealed segment as it was
left, after a look at its end; `recover` scans it, rebuilds the indexes and cuts off what a torn write or a flipped bit
left.

Invariants: batches follow one another without a gap in the file and with growing offsets; an entry of an index always
names a batch that is there. A segment that was loaded and not scanned is checked when it is first read: what has
another checksum than on the day it was written is never served. A read ends before it, and one that begins there is
refused with CORRUPT_MESSAGE.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from anabranch.broker.storage.aborted_transactions import AbortedTransaction, decode_aborted, encode_aborted
from anabranch.broker.storage.batch_validity import valid_prefix
from anabranch.broker.storage.deferred_file import create_or_defer
from anabranch.broker.storage.files import File, Files
from anabranch.broker.storage.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.lost_batch_search import contains_batch
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    check_crc,
    read_header,
)

log = logging.getLogger(__name__)

SUFFIXES: Final = ("index", "timeindex", "txnindex", "log")
"""The files of a segment; the log comes last, so that it is never there without its indexes when files are renamed."""
_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
_SCAN_BYTES: Final = 64 * 1024
_WALK_BYTES: Final = 8 * 1024
_BOUNDARIES_REMEMBERED: Final = 16
_SPAN: Final = struct.Struct(">qi11xi")  # base offset, length and last offset delta: all that a walk needs


def segment_path(directory: str, base_offset: int, suffix: str = "log", stage: str = "") -> str:
    """A file of a segment; `stage` is ".cleaned" or ".swap" while compaction is at it."""
    return f"{directory}/{base_offset:020d}.{suffix}{stage}"


class Segment:
    """A run of batches in one file; the last segment of a log is the one that grows."""

    __slots__ = (
        "_boundaries",
        "_bytes_since_entry",
        "_damaged",
        "_directory",
        "_files",
        "_stage",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp_ms",
        "held_more",
        "max_timestamp_ms",
        "max_timestamp_offset",
        "offset_index",
        "time_index",
        "verified_bytes",
    )

    def __init__(
        self, files: Files, directory: str, base_offset: int, created_ms: int, stage: str = "", *, late: bool = False
    ) -> None:
        """`late`: the file may be made with its first bytes, if the disk refuses it now."""
        self._files = files
        self._directory = directory
        self._stage = stage
        self._damaged = False
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.file: File = create_or_defer(self._make_file) if late else self._make_file()
        self._reset()

    def __repr__(self) -> str:
        return f"<segment {self.base_offset} of {self._directory}, {self.file.size_bytes} bytes>"

    def _make_file(self) -> File:
        self.file = self._files.open(self._path("log"))
        return self.file

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
        self.verified_bytes = 0
        """Up to here, the bytes were written or checked in this life."""
        self.held_more = False  # whether `recover` has cut off what was stored once, and not just a torn end

    # --------------------------------------------------------------------------------------------------------- writing

    def is_full(
        self, last_offset: int, size_bytes: int, max_timestamp_ms: int, settings: LogSettings, now_ms: int
    ) -> bool:
        """Whether a batch needs a new segment: by size, by range of offsets, by the index's size, or by age.

        The age is by the clock of the records, or by ours if they have none. An empty segment takes anything.
        """
        filled_bytes = self.file.size_bytes
        if not filled_bytes:
            return False
        if self.first_timestamp_ms != NO_TIMESTAMP and max_timestamp_ms != NO_TIMESTAMP:
            age_ms = max_timestamp_ms - self.first_timestamp_ms
        else:
            age_ms = now_ms - self.created_ms
        return (
            filled_bytes + size_bytes > settings.segment_bytes
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or self.offset_index.size_bytes >= settings.segment_index_bytes
            or age_ms > settings.segment_ms
        )

    @property
    def written_ms(self) -> int:
        """When the youngest record was written, by its own clock if it has one."""
        return self.max_timestamp_ms if self.max_timestamp_ms != NO_TIMESTAMP else self.created_ms

    def append(
        self, *chunks: Buffer, last_offset: int, size_bytes: int, max_timestamp_ms: int, index_interval_bytes: int
    ) -> None:
        """Add a batch that has its offset already. Raises OSError, and then nothing has been added."""
        position = self.file.size_bytes
        self.file.append(*chunks)
        if self.verified_bytes == position:
            self.verified_bytes = position + size_bytes
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
            if last < 0:
                raise self._corrupt(position, "the file ends inside a batch")
            while inside <= last:
                base_offset, length, last_delta = _SPAN.unpack_from(window, inside)
                if base_offset + last_delta >= offset:
                    return position + inside
                if length < _LENGTH_MIN:
                    raise self._corrupt(position + inside, f"a batch of {length} bytes")
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
            return self._verified(start, self.file.read(start, stop - start), stop - start, stop_offset)
        data = self.file.read(start, max_bytes + HEADER_BYTES)  # with a look at the batch behind
        whole = self._whole_batches(data, start, max_bytes)
        if not whole and min_one_batch:
            whole = read_header(data).size_bytes
            if whole > stop - start:
                raise self._corrupt(start, f"a batch of {whole} bytes")
            data = self.file.read(start, whole)
        return self._verified(start, data[:whole], whole, stop_offset)

    def _verified(self, start: int, data: bytes, size_bytes: int, end_offset: int) -> bytes:
        """What stands at a position, up to the first batch that is not what was once written there."""
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
            log.error("%s is damaged at byte %d, and what stands there is not served: %s", path, position, reason)
            self._damaged = True
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{path} at byte {position}: {reason}")

    def _whole_batches(self, data: bytes, start: int, max_bytes: int) -> int:
        """How many bytes of `data`, read from `start`, are whole batches."""
        inside = max(0, self.offset_index.batch_start_before(start + max_bytes) - start)
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

    def load(self) -> int | None:
        """Take the segment and its indexes as a sealed one was left; the offset behind its last batch.

        None if they do not fit together: then `recover` has to scan. What lies behind the last index entry is walked,
        so a file that lost its end is noticed here, and one that lost something else when it is read.
        """
        self._reset()
        contents = [self._files.read_file(self._path(suffix)) for suffix in ("index", "timeindex")]
        if contents[0] is None or contents[1] is None:
            return None
        try:
            self.offset_index = OffsetIndex.from_bytes(self.base_offset, contents[0])
            self.time_index = TimeIndex.from_bytes(self.base_offset, contents[1])
        except ValueError:
            return None
        size_bytes = self.file.size_bytes
        start = position = self.offset_index.last_position
        next_offset = self.base_offset
        for batch_position, header in self.headers(start):
            position = batch_position + header.size_bytes
            next_offset = header.next_offset
        if position != size_bytes or (size_bytes and next_offset == self.base_offset):
            return None
        if max(self.offset_index.end, self.time_index.end) > max(self.base_offset, next_offset):
            return None
        self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last
        self._bytes_since_entry = size_bytes - start
        first = self.file.read(0, HEADER_BYTES)
        self.first_timestamp_ms = read_header(first).max_timestamp if first else NO_TIMESTAMP
        return next_offset

    def promised_end(self, limit: int) -> int:
        """How far the batches reached at least when the segment was sealed; its base offset if nothing tells.

        What promises more than `limit`, the base of the next segment, is no evidence of loss: it is damaged itself.
        """
        ends = [self.base_offset]
        kinds: tuple[tuple[str, type[OffsetIndex] | type[TimeIndex]], ...] = (
            ("index", OffsetIndex),
            ("timeindex", TimeIndex),
        )
        for suffix, kind in kinds:
            try:
                ends.append(kind.from_bytes(self.base_offset, self._files.read_file(self._path(suffix)) or b"").end)
            except ValueError:
                continue
        return max(end for end in ends if end <= limit)

    def load_aborted(self) -> list[AbortedTransaction]:
        """The aborted transactions that ended in this segment, as `seal` wrote them. ValueError if that is damaged."""
        content = self._files.read_file(self._path("txnindex"))
        if content is None:
            raise ValueError("it has no transaction index")
        return decode_aborted(content)

    def recover(
        self, *, index_interval_bytes: int, verify: bool, limit_offset: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Rebuild the indexes and cut off what is no batch; yields the batches that stay.

        `verify` also compares checksums. `limit_offset` is where the next segment begins: what reaches beyond was
        truncated before that was made, and a power failure brought it back. Iterate to the end: there it cuts.
        """
        self._reset()
        end = 0
        for position, header in self.headers():
            if limit_offset is not None and header.base_offset >= limit_offset:
                break
            if verify and not check_crc(self.read_batch(position, header), 0, header):
                self.held_more = True
                break
            self._note(header.last_offset, position, header.size_bytes, header.max_timestamp, index_interval_bytes)
            end = position + header.size_bytes
            yield position, header
        else:
            self.held_more = contains_batch(self.file, end)
        self.file.truncate(end)
        self.verified_bytes = end if verify else 0

    def truncate(self, position: int, offset: int) -> None:
        """Drop all batches from a position on; `offset` is the first one of them."""
        self.file.truncate(position)
        self.offset_index.truncate(position)
        self.time_index.truncate(offset)
        self._boundaries.clear()
        self.verified_bytes = min(self.verified_bytes, position)
        if not position:
            self._reset()
            return
        start = self.offset_index.last_position
        self.max_timestamp_ms, self.max_timestamp_offset = self.time_index.last
        for _, header in self.headers(start):
            if header.max_timestamp > self.max_timestamp_ms:
                self.max_timestamp_ms, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        self._bytes_since_entry = position - start

    def seal(self, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Write the indexes: nothing will be appended any more. `aborted` are the transactions that ended in here."""
        if self.file.size_bytes:
            self.time_index.append(self.max_timestamp_ms, self.max_timestamp_offset)
        self._files.write_file(self._path("index"), self.offset_index.to_bytes())
        self._files.write_file(self._path("timeindex"), self.time_index.to_bytes())
        # Also when there are none: only so is a lost index told from an empty one.
        self._files.write_file(self._path("txnindex"), encode_aborted(aborted))

    def rename(self, stage: str) -> None:
        """Move all files to another stage, the log last: a log without a stage, or in `.swap`, is complete."""
        self.close()
        for suffix in SUFFIXES:
            path = self._path(suffix)
            if self._files.exists(path):
                self._files.rename(path, segment_path(self._directory, self.base_offset, suffix, stage))
        self._stage = stage
        self._make_file()

    def close(self) -> None:
        """Give back the file."""
        self.file.close()

    def delete(self) -> None:
        """Remove the segment's files, the log first: indexes without a log are known to be left-overs."""
        self.close()
        for suffix in reversed(SUFFIXES):
            self._files.remove(self._path(suffix))

    def _path(self, suffix: str) -> str:
        return segment_path(self._directory, self.base_offset, suffix, self._stage)
