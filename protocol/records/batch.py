"""Record batches, format v2 (magic 2): read headers, walk, check, re-stamp, build, and iterate records.

A batch is 61 bytes of header and a blob of records, compressed as a whole if a codec is set. The checksum covers
everything from `attributes` on; `base_offset` and `partition_leader_epoch` stand before it, which is why a leader can
stamp both without touching the rest, and why a batch is stored and served as the bytes that came in (decision D9).

Who decides what: this module says whether bytes *are* a batch (DecodeError if not). Whether a batch may be appended to
a log is `broker.storage.validation`'s question. Reference: KIP-98, `DefaultRecordBatch` and `DefaultRecord` of Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from protocol.errors import DecodeError
from protocol.records.compression import DECOMPRESSED_BYTES_MAX, Compression, compress, decompress
from protocol.records.crc32c import crc32c
from protocol.varint import decode_varint, decode_varlong, encode_varint

Buffer = bytes | bytearray | memoryview

MAGIC: Final = 2
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and length: what stands before the bytes that the length counts."""
CRC_START: Final = 21
"""Position of `attributes`, where the checksum's range begins."""

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

_HEADER: Final = struct.Struct(
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
        """The compression codec's id, one of `Compression` if the batch is sound."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether all records bear the batch's max timestamp, which a broker has set."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction (its control batches included)."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch carries a marker instead of an application's records."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on compaction may drop this batch's tombstones, or its marker; None until it has decided that."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer has sent the batch."""
        return self.producer_id > NO_PRODUCER_ID


class Record(NamedTuple):
    """One record as an application sees it, with its absolute offset."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at a position; the caller has made sure that 61 bytes are there and what to think of them."""
    return BatchHeader._make(_HEADER.unpack_from(buffer, position))


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch. An incomplete tail, as fetch answers may have one, is left out."""
    end = len(buffer)
    while position + HEADER_BYTES <= end:
        header = BatchHeader._make(_HEADER.unpack_from(buffer, position))
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
    """Whether the batch at a position has the checksum that its header claims."""
    start, end = position + CRC_START, position + header.size_bytes
    return crc32c(memoryview(buffer)[start:end]) == header.crc


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write in place what a leader adds to a batch: its place in the log, and in whose term it got there."""
    _I64.pack_into(buffer, position, base_offset)
    _I32.pack_into(buffer, position + LOG_OVERHEAD_BYTES, leader_epoch)


def stamp_log_append_time(buffer: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int) -> None:
    """Turn all timestamps of a batch into the broker's; unlike `stamp` this needs a new checksum."""
    view = memoryview(buffer)
    attributes = header.attributes | LOG_APPEND_TIME
    struct.pack_into(">h", view, position + CRC_START, attributes)
    _I64.pack_into(view, position + 35, now_ms)
    _seal(view, position, header.size_bytes)


def stamp_create_time(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Leave the timestamps of a batch as they are, and say that they are its producer's."""
    view = memoryview(buffer)
    struct.pack_into(">h", view, position + CRC_START, header.attributes & ~LOG_APPEND_TIME)
    _seal(view, position, header.size_bytes)


def recompress(
    batch: Buffer,
    header: BatchHeader,
    codec: int,
    level: int | None = None,
    *,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """The same batch with its records under another codec."""
    records = decompress(header.codec, memoryview(batch)[HEADER_BYTES : header.size_bytes], limit_bytes)
    blob = compress(codec, records, level)
    changed = bytearray(memoryview(batch)[:HEADER_BYTES])
    changed += blob
    _I32.pack_into(changed, 8, len(changed) - LOG_OVERHEAD_BYTES)
    struct.pack_into(">h", changed, CRC_START, header.attributes & ~CODEC_MASK | codec)
    _seal(memoryview(changed), 0, len(changed))
    return changed


def _seal(view: memoryview, position: int, size_bytes: int) -> None:
    _U32.pack_into(view, position + 17, crc32c(view[position + CRC_START : position + size_bytes]))


# ----------------------------------------------------------------------------------------------------- reading records


def iter_records(batch: Buffer, position: int = 0) -> Iterator[Record]:
    """The records of one batch, oldest first. Raises DecodeError where the bytes stop making sense.

    Control batches iterate too: whoever hands records to an application looks at the header first.
    """
    header = read_header(batch, position)
    view = memoryview(batch)[position + HEADER_BYTES : position + header.size_bytes]
    if len(view) != header.batch_length + LOG_OVERHEAD_BYTES - HEADER_BYTES:
        raise DecodeError("the record batch is cut off", buffer=batch, position=position)
    codec = header.attributes & CODEC_MASK
    data = bytes(view) if codec == Compression.NONE else decompress(codec, view)
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    return _records(data, header.record_count, header.base_offset, header.base_timestamp, fixed_timestamp)


def _records(  # noqa: PLR0915 -- one flat loop: a call per field would halve the rate
    data: bytes, count: int, base_offset: int, base_timestamp: int, fixed_timestamp: int | None
) -> Iterator[Record]:
    """Consumers spend their time here: one-byte varints, nearly all of them, are read in line."""
    position = 0
    make = Record._make
    try:
        for _ in range(count):
            # A varint: one byte; or two, put together by adding the second, shifted, and dropping the first one's flag;
            # or more, which `decode_varint` reads. Then the zigzag: the lowest bit is the sign.
            number = data[position]
            position += 1
            if number > 127:
                if (second := data[position]) < 128:
                    number += (second << 7) - 128
                    position += 1
                    end = position + (number >> 1)
                else:
                    number, position = decode_varint(data, position - 1)
                    end = position + number
            else:
                end = position + (number >> 1)
            position += 1  # attributes, of which no bit is in use
            number = data[position]
            position += 1
            if number > 127:
                if (second := data[position]) < 128:
                    number += (second << 7) - 128
                    position += 1
                    timestamp = base_timestamp + (number >> 1 ^ -(number & 1))
                else:
                    number, position = decode_varlong(data, position - 1)
                    timestamp = base_timestamp + number
            else:
                timestamp = base_timestamp + (number >> 1 ^ -(number & 1))
            number = data[position]
            position += 1
            if number > 127:
                if (second := data[position]) < 128:
                    number += (second << 7) - 128
                    position += 1
                    offset = base_offset + (number >> 1)
                else:
                    number, position = decode_varint(data, position - 1)
                    offset = base_offset + number
            else:
                offset = base_offset + (number >> 1)
            length = data[position]
            position += 1
            if length < 128:
                length = length >> 1 ^ -(length & 1)
            else:
                length, position = decode_varint(data, position - 1)
            key = None
            if length >= 0:
                key = data[position : position + length]
                position += length
            length = data[position]
            position += 1
            if length < 128:
                length = length >> 1 ^ -(length & 1)
            elif (second := data[position]) < 128:
                length += (second << 7) - 128
                position += 1
                length = length >> 1 ^ -(length & 1)
            else:
                length, position = decode_varint(data, position - 1)
            value = None
            if length >= 0:
                value = data[position : position + length]
                position += length
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if data[position]:
                headers, position = _read_headers(data, position)
            else:
                position += 1
            if position != end:
                raise DecodeError(f"a record ends {position - end} bytes late", buffer=data, position=end)
            if fixed_timestamp is not None:
                timestamp = fixed_timestamp
            yield make((offset, timestamp, key, value, headers))
    except IndexError:
        raise DecodeError("the records are cut off", buffer=data, position=len(data)) from None
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes after the last record", buffer=data, position=position)


def _read_headers(data: bytes, position: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = decode_varint(data, position)
    if not 0 <= count <= len(data):
        raise DecodeError(f"a record with {count} headers", buffer=data, position=position)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = decode_varint(data, position)
        if length < 0 or position + length > len(data):
            raise DecodeError(f"a header key of {length} bytes", buffer=data, position=position)
        try:
            key = data[position : position + length].decode()
        except UnicodeDecodeError:
            raise DecodeError("a header key is not UTF-8", buffer=data, position=position) from None
        position += length
        length, position = decode_varint(data, position)
        value = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        headers.append((key, value))
    return tuple(headers), position


# ---------------------------------------------------------------------------------------------------------- compacting


def with_records(batch: Buffer, header: BatchHeader, records: Sequence[Record], delete_horizon_ms: int | None) -> bytes:
    """The same batch with some of its records, as compaction leaves it: offsets and sequences stay what they were.

    `delete_horizon_ms`, the time from which tombstones may go, takes the place of the base timestamp (KIP-534); None
    keeps what the batch has.
    """
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp = delete_horizon_ms
    parts: list[bytes] = []
    for record in records:
        body = b"".join(
            (
                _ZERO,
                encode_varint(record.timestamp_ms - base_timestamp),
                encode_varint(record.offset - header.base_offset),
                _NULL if record.key is None else encode_varint(len(record.key)),
                record.key or b"",
                _NULL if record.value is None else encode_varint(len(record.value)),
                record.value or b"",
                _encode_headers(record.headers),
            )
        )
        parts += (encode_varint(len(body)), body)
    latest = header.max_timestamp
    if not header.is_log_append_time and records:
        latest = max(record.timestamp_ms for record in records)
    changed = bytearray(HEADER_BYTES) + compress(header.codec, b"".join(parts)) if records else bytearray(HEADER_BYTES)
    if not records:
        attributes &= ~(CODEC_MASK | DELETE_HORIZON)
        base_timestamp = NO_TIMESTAMP
    fields = header._replace(
        batch_length=len(changed) - LOG_OVERHEAD_BYTES,
        crc=0,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=latest,
        record_count=len(records),
    )
    _HEADER.pack_into(changed, 0, *fields)
    _seal(memoryview(changed), 0, len(changed))
    return bytes(changed)


# ------------------------------------------------------------------------------------------------------------ building


class _Varints(dict[int, bytes]):
    """Remembers the encodings of small numbers, the lengths and deltas that come again with every record."""

    def __missing__(self, value: int) -> bytes:
        encoded = encode_varint(value)
        if -1 <= value < 4096:
            self[value] = encoded
        return encoded


_varints: Final = _Varints()
_NULL: Final = b"\x01"
_ZERO: Final = b"\x00"

Headers = Sequence[tuple[str, bytes | None]]


class BatchBuilder:
    """Collects records and builds one batch of them.

    `limit_bytes` bounds the batch before compression; the first record always fits, so that a record larger than the
    limit travels alone (and is refused by the broker if it is too large there).
    """

    __slots__ = (
        "_base_timestamp_ms",
        "_blob",
        "_codec",
        "_count",
        "_limit_bytes",
        "_max_timestamp_ms",
        "_parts",
        "_size_bytes",
    )

    def __init__(self, compression: str | None = "none", *, limit_bytes: int = 16384) -> None:
        self._codec = Compression.named(compression)
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size_bytes = HEADER_BYTES
        self._count = 0
        self._base_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_ms = NO_TIMESTAMP
        self._blob: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """What the batch takes before compression."""
        return self._size_bytes

    @property
    def record_count(self) -> int:
        """How many records have been appended."""
        return self._count

    @property
    def max_timestamp_ms(self) -> int:
        """The latest timestamp so far, -1 without any."""
        return self._max_timestamp_ms

    def append(
        self, key: bytes | None, value: bytes | None, headers: Headers = (), timestamp_ms: int = NO_TIMESTAMP
    ) -> bool:
        """Add a record; False, and nothing added, if the batch is full."""
        varints = _varints
        count = self._count
        body = b"".join(
            (
                _ZERO,
                varints[timestamp_ms - self._base_timestamp_ms] if count else _ZERO,
                varints[count],
                _NULL if key is None else varints[len(key)],
                key or b"",
                _NULL if value is None else varints[len(value)],
                value or b"",
                _encode_headers(headers) if headers else _ZERO,
            )
        )
        prefix = varints[len(body)]
        size_bytes = self._size_bytes + len(prefix) + len(body)
        if size_bytes > self._limit_bytes and count:
            return False
        if not count:
            self._base_timestamp_ms = timestamp_ms
        if timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms
        self._parts.append(prefix)
        self._parts.append(body)
        self._size_bytes = size_bytes
        self._count = count + 1
        self._blob = None
        return True

    def build(
        self,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        control: bool = False,
    ) -> bytes:
        """The batch with everything appended so far; building again (another producer id) does not compress again."""
        if not self._count:
            raise ValueError("a batch needs a record")
        if self._blob is None:
            self._blob = compress(self._codec, b"".join(self._parts))
        attributes = self._codec | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
        batch = bytearray(HEADER_BYTES)
        batch += self._blob
        _HEADER.pack_into(
            batch,
            0,
            base_offset,
            len(batch) - LOG_OVERHEAD_BYTES,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            self._count - 1,
            self._base_timestamp_ms,
            self._max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            self._count,
        )
        sealed = bytes(batch)
        return sealed[:17] + _U32.pack(crc32c(sealed[CRC_START:])) + sealed[CRC_START:]


def _encode_headers(headers: Headers) -> bytes:
    parts = [_varints[len(headers)]]
    for name, value in headers:
        key = name.encode()
        parts.append(_varints[len(key)])
        parts.append(key)
        parts.append(_NULL if value is None else _varints[len(value)])
        parts.append(value or b"")
    return b"".join(parts)
