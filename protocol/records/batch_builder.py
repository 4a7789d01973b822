"""Builds batches of records: new ones for producers, remaining ones for compaction.

The inverse of `record`. Both set length and checksum, whatever was changed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from anabranch.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL,
    CRC_POSITION,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    seal,
)
from anabranch.protocol.records.compression import Compression, compress
from anabranch.protocol.records.crc32c import crc32c
from anabranch.protocol.records.record import Headers, Record
from anabranch.protocol.varint import decode_varint, decode_varlong, encode_varint


class _Varints(dict[int, bytes]):
    """Caches the encodings of small numbers: lengths and deltas that repeat with every record."""

    def __missing__(self, value: int) -> bytes:
        encoded = encode_varint(value)
        if -1 <= value < 4096:
            self[value] = encoded
        return encoded


_varints: Final = _Varints()
_NULL: Final = b"\x01"
_ZERO: Final = b"\x00"
_U32: Final = struct.Struct(">I")


class BatchBuilder:
    """Collects records and builds one batch of them.

    `limit_bytes` bounds the batch before compression; the first record always fits, so a record above the limit is sent
    alone (and refused by a broker with a lower limit).
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
        self._codec = Compression.by_name(compression)
        self._limit_bytes = limit_bytes
        self._parts: list[bytes] = []
        self._size_bytes = HEADER_BYTES
        self._count = 0
        self._base_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_ms = NO_TIMESTAMP
        self._blob: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the batch before compression."""
        return self._size_bytes

    @property
    def record_count(self) -> int:
        """The number of appended records."""
        return self._count

    @property
    def max_timestamp_ms(self) -> int:
        """The latest timestamp so far, -1 without any."""
        return self._max_timestamp_ms

    def append(
        self, key: bytes | None, value: bytes | None, headers: Headers = (), timestamp_ms: int = NO_TIMESTAMP
    ) -> bool:
        """Add a record; return False, without adding it, if the batch is full."""
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
        """Build the batch of all appended records; building again (another producer id) does not compress again."""
        if not self._count:
            raise ValueError("a batch needs a record")
        if self._blob is None:
            self._blob = compress(self._codec, b"".join(self._parts))
        attributes = self._codec | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
        batch = bytearray(HEADER_BYTES)
        batch += self._blob
        HEADER.pack_into(
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
        return sealed[:CRC_POSITION] + _U32.pack(crc32c(sealed[ATTRIBUTES_POSITION:])) + sealed[ATTRIBUTES_POSITION:]


def _encode_headers(headers: Headers) -> bytes:
    parts = [_varints[len(headers)]]
    for name, value in headers:
        key = name.encode()
        parts.append(_varints[len(key)])
        parts.append(key)
        parts.append(_NULL if value is None else _varints[len(value)])
        parts.append(value or b"")
    return b"".join(parts)


def with_records(batch: Buffer, header: BatchHeader, records: Sequence[Record], delete_horizon_ms: int | None) -> bytes:
    """Return the same batch with some of its records, for compaction: offsets and sequences stay.

    `delete_horizon_ms`, the time from which tombstones may be removed, replaces the base timestamp (KIP-534); None
    keeps the batch's.
    """
    base_timestamp = header.base_timestamp if delete_horizon_ms is None else delete_horizon_ms
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
    latest = max((record.timestamp_ms for record in records), default=header.max_timestamp)
    return with_content(header, b"".join(parts), len(records), latest, delete_horizon_ms)


def shift_timestamp(record: bytes, by_ms: int) -> bytes:
    """Return a record with its timestamp delta increased. The fields after it are not read."""
    _, start = decode_varint(record, 0)
    delta, end = decode_varlong(record, start + 1)
    body = record[start : start + 1] + encode_varint(delta + by_ms) + record[end:]
    return encode_varint(len(body)) + body


def with_content(
    header: BatchHeader, content: Buffer, count: int, latest_ms: int, delete_horizon_ms: int | None
) -> bytes:
    """Return the batch with this header and other content: `count` records, the latest from `latest_ms`."""
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
        base_timestamp = delete_horizon_ms
    latest = header.max_timestamp if header.is_log_append_time or not count else latest_ms
    changed = bytearray(HEADER_BYTES) + (compress(header.codec, content) if count else b"")
    if not count:
        attributes &= ~(CODEC_MASK | DELETE_HORIZON)
        base_timestamp = NO_TIMESTAMP
    fields = header._replace(
        batch_length=len(changed) - LOG_OVERHEAD_BYTES,
        crc=0,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=latest,
        record_count=count,
    )
    HEADER.pack_into(changed, 0, *fields)
    seal(memoryview(changed), 0, len(changed))
    return bytes(changed)
