"""Record batches, format v2 (magic 2): read headers, walk, check and change. `record` reads the content of one,
`batch_builder` writes it.

A batch is 61 bytes of header and a blob of records, compressed as a whole if a codec is set. The checksum covers
everything from `attributes` on; `base_offset` and `partition_leader_epoch` stand before it, which is why a leader can
set both without touching the rest, and why a batch is stored and served as the bytes that came in (decision D9).

This module decides whether bytes *are* a batch (DecodeError if not). `broker.storage.validation` decides whether a
batch may be appended to a log. Reference: KIP-98, `DefaultRecordBatch` and `DefaultRecord` of Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.compression import DECOMPRESSED_BYTES_MAX, compress, decompress
from anabranch.protocol.records.crc32c import crc32c

Buffer = bytes | bytearray | memoryview

MAGIC: Final = 2
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and length: the bytes that the length does not count."""

# Positions of header fields, for callers that need only one of them.
LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
"""The same in messages of formats v0 and v1."""
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
"""The checksum covers everything from here on."""
FLAGS_POSITION: Final = 22
"""The lower byte of `attributes`: the codec, and all existing flags."""
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
RECORD_COUNT_POSITION: Final = 57
SIGN_BIT: Final = 0x80
MESSAGE_FLAGS_POSITION: Final = 17
"""The one byte of attributes in a message of format v0 or v1."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
SEQUENCES: Final = 1 << 31
"""Sequence numbers wrap from 2^31 - 1 to 0."""

HEADER: Final = struct.Struct(
    ">"
    "q"  # base offset
    "i"  # length of what follows
    "i"  # partition leader epoch
    "b"  # magic
    "I"  # crc of what follows
    "h"  # attributes
    "i"  # last offset delta
    "q"  # base timestamp
    "q"  # max timestamp
    "q"  # producer id
    "h"  # producer epoch
    "i"  # base sequence
    "i"  # record count
)
_I64: Final = struct.Struct(">q")
_I32: Final = struct.Struct(">i")
_U32: Final = struct.Struct(">I")


class BatchHeader(NamedTuple):
    """The 61 bytes before the records."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, also if compaction has removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1 without an idempotent producer."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCES

    @property
    def codec(self) -> int:
        """The compression codec's id, one of `Compression` in a valid batch."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records have the batch's max timestamp, set by a broker."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction (including control batches)."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch carries a marker instead of an application's records."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop this batch's tombstones, or its marker; None until that is decided."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer sent the batch."""
        return self.producer_id > NO_PRODUCER_ID


_new_header: Final[Callable[[tuple[int, ...]], BatchHeader]] = partial(tuple.__new__, BatchHeader)
"""As `BatchHeader._make`, which is written in Python and counts the fields again."""


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at a position; the caller ensures that there are 61 bytes, and validates it."""
    return _new_header(HEADER.unpack_from(buffer, position))


def has_producer_id(buffer: Buffer) -> bool:
    """Whether the first batch has a producer id, by its sign; as the header's property."""
    return buffer[PRODUCER_ID_POSITION] < SIGN_BIT


def record_count_of(buffer: Buffer) -> int:
    """Return the record count of the first batch, of which there are 61 bytes."""
    count: int = _I32.unpack_from(buffer, RECORD_COUNT_POSITION)[0]
    return count


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of every whole batch. An incomplete tail, as in fetch responses, is left out."""
    position, end = 0, len(buffer)
    while position + HEADER_BYTES <= end:
        header = _new_header(HEADER.unpack_from(buffer, position))
        if header.magic != MAGIC:
            raise DecodeError(f"record batch of magic {header.magic}", buffer=buffer, position=position)
        if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise DecodeError(f"record batch of {header.batch_length} bytes", buffer=buffer, position=position)
        following = position + LOG_OVERHEAD_BYTES + header.batch_length
        if following > end:
            return
        yield position, header
        position = following


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch at a position matches its header's checksum."""
    start, end = position + ATTRIBUTES_POSITION, position + LOG_OVERHEAD_BYTES + header.batch_length
    return crc32c(memoryview(buffer)[start:end]) == header.crc


def set_log_append_time(buffer: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int) -> None:
    """Set all timestamps of a batch to the broker's."""
    view = memoryview(buffer)
    attributes = header.attributes | LOG_APPEND_TIME
    struct.pack_into(">h", view, position + ATTRIBUTES_POSITION, attributes)
    _I64.pack_into(view, position + MAX_TIMESTAMP_POSITION, now_ms)
    seal(view, position, header.size_bytes)


def set_create_time(buffer: bytearray | memoryview, position: int, header: BatchHeader, max_timestamp: int) -> None:
    """Keep a batch's timestamps, mark them as the producer's, and set the latest."""
    view = memoryview(buffer)
    struct.pack_into(">h", view, position + ATTRIBUTES_POSITION, header.attributes & ~LOG_APPEND_TIME)
    _I64.pack_into(view, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    seal(view, position, header.size_bytes)


def recompress(
    batch: Buffer,
    header: BatchHeader,
    codec: int,
    level: int | None = None,
    *,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """Return the same batch with its records under another codec."""
    records = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size_bytes], limit_bytes)
    blob = compress(codec, records, level)
    changed = bytearray(memoryview(batch)[:HEADER_BYTES])
    changed += blob
    _I32.pack_into(changed, LENGTH_POSITION, len(changed) - LOG_OVERHEAD_BYTES)
    struct.pack_into(">h", changed, ATTRIBUTES_POSITION, header.attributes & ~CODEC_MASK | codec)
    seal(memoryview(changed), 0, len(changed))
    return changed


def seal(view: memoryview, position: int, size_bytes: int) -> None:
    """Write the checksum of an otherwise complete batch."""
    _U32.pack_into(view, position + CRC_POSITION, crc32c(view[position + ATTRIBUTES_POSITION : position + size_bytes]))
