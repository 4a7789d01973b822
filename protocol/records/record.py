"""The records of a batch, one after the other.

A record is a length, then varints and bytes, each relative to its batch: timestamp and offset are deltas. Reference:
KIP-98, `DefaultRecord` of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from types import FunctionType
from typing import Any, Final, NamedTuple

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import CODEC_MASK, HEADER_BYTES, LOG_OVERHEAD_BYTES, Buffer, read_header
from anabranch.protocol.records.compression import Compression, decompress
from anabranch.protocol.records.stretch import RECORDS_MIN, read_stretch, size_of
from anabranch.protocol.records.uneven import read_uneven
from anabranch.protocol.varint import decode_varint, decode_varlong

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record as an application sees it, with its absolute offset."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Columns(NamedTuple):
    """Some records of a batch, field by field: callers that need rows build them once, in their own type."""

    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[tuple[str, bytes | None], ...]]

    def without(self, first: int) -> Columns:
        """Return all but the first ones."""
        return Columns._make(column[first:] for column in self)


NULL: Final = -1
NULL_VARINT: Final = 1
"""The length of a null field, and as it is encoded."""
FIELDS: Final = len(Columns._fields)
AT_ONCE: Final = 500
"""How many records `iter_records` reads ahead: they are used while in the processor's caches, and the garbage collector
never scans a whole batch."""
_new: Final = tuple.__new__


def iter_records(batch: Buffer, position: int = 0, *, headers_max: int | None = None) -> Iterator[Record]:
    """Yield the records of one batch, oldest first. Raises DecodeError at invalid bytes.

    At most `headers_max` headers of a record are read, and the others not checked: a record may have millions. Control
    batches iterate too: a caller that delivers records to an application checks the header first.
    """
    return _rows(RecordReader(batch, position, headers_max=headers_max))


def _rows(reader: RecordReader) -> Iterator[Record]:
    while reader.left:
        yield from map(_new, repeat(Record), zip(*reader.read(AT_ONCE), strict=True))


class RecordReader:
    """Reads the records of one batch, oldest first, some at a time."""

    __slots__ = ("_base_offset", "_base_timestamp", "_data", "_fixed_timestamp", "_headers_max", "_position", "left")

    def __init__(self, batch: Buffer, position: int = 0, *, headers_max: int | None = None) -> None:
        """Open a batch. Raises DecodeError if it is cut off or not decompressible. `headers_max`: as `iter_records`."""
        header = read_header(batch, position)
        view = memoryview(batch)[position + HEADER_BYTES : position + header.size_bytes]
        if len(view) != header.batch_length + LOG_OVERHEAD_BYTES - HEADER_BYTES:
            raise DecodeError("the record batch is cut off", buffer=batch, position=position)
        codec = header.attributes & CODEC_MASK
        self._data = bytes(view) if codec == Compression.NONE else decompress(codec, view)
        self._headers_max = headers_max
        self._position = 0
        self._base_offset = header.base_offset
        self._base_timestamp = header.base_timestamp
        self._fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
        self.left = max(0, header.record_count)
        """How many records were not read yet."""
        if not self.left:
            self._check_end(0)

    @property
    def content(self) -> bytes:
        """All records, uncompressed."""
        return self._data

    def read(self, limit: int, *, before: int | None = None) -> Columns:
        """Read the next records, 1 to `limit`, preferably none at or after the offset `before`.

        Raises DecodeError, without moving, if one of them is invalid.
        """
        count = min(limit, self.left)
        data = self._data
        if count >= RECORDS_MIN and _BY_COLUMN:
            where = (self._position, count, self._base_offset, self._base_timestamp)
            if (alike := read_stretch(data, *where)) is not None:
                return self._take(
                    Columns._make(alike), self._position + len(alike[0]) * size_of(data, self._position), before
                )
            if (uneven := read_uneven(data, *where)) is not None:
                return self._take(Columns._make(uneven[0]), uneven[1], before)
        try:
            fields, position = _read_records(
                data, self._position, count, self._base_offset, self._base_timestamp, self._headers_max
            )
        except IndexError:
            raise DecodeError("the records are cut off", buffer=data, position=len(data)) from None
        return self._take(Columns(*(fields[column::FIELDS] for column in range(FIELDS))), position, before)

    def _take(self, columns: Columns, position: int, before: int | None) -> Columns:
        offsets = columns.offsets
        count = len(offsets)
        if count == self.left:
            self._check_end(position)
        if offsets and before is not None and offsets[-1] >= before:
            raise DecodeError(f"a record at offset {offsets[-1]}")
        self._position = position
        self.left -= count
        if self._fixed_timestamp is not None:
            columns.timestamps_ms[:] = [self._fixed_timestamp] * count
        return columns

    def _check_end(self, position: int) -> None:
        if surplus := len(self._data) - position:
            raise DecodeError(f"{surplus} bytes after the last record", buffer=self._data, position=position)


def _read_records(  # noqa: PLR0915 -- one flat loop: a call per field would halve the rate
    data: bytes, position: int, count: int, base_offset: int, base_timestamp: int, headers_max: int | None = None
) -> tuple[list[Any], int]:
    """Read the fields of `count` records, as in `Columns`, and return the position after the last record.

    Consumers spend their time here: one-byte varints, nearly all of them, are read inline.
    """
    fields: list[Any] = []
    for _ in range(count):
        # A varint: one byte; or two, put together by adding the second, shifted, and dropping the first one's flag;
        # or more, which `decode_varint` reads. Then the zigzag: the lowest bit is the sign.
        number = data[position]
        if number < 128:
            position += 1
            end = position + (number >> 1)
        elif (second := data[position + 1]) < 128:
            position += 2
            end = position + (number + (second << 7) - 128 >> 1)
        else:
            number, position = decode_varint(data, position)
            end = position + number
        position += 1  # attributes, with no bit in use
        number = data[position]
        if number < 128:
            position += 1
            timestamp = base_timestamp + (number >> 1 ^ -(number & 1))
        elif (second := data[position + 1]) < 128:
            position += 2
            number += (second << 7) - 128
            timestamp = base_timestamp + (number >> 1 ^ -(number & 1))
        else:
            number, position = decode_varlong(data, position)
            timestamp = base_timestamp + number
        number = data[position]
        if number < 128 and not number & 1:
            position += 1
            offset = base_offset + (number >> 1)
        elif not number & 1 and (second := data[position + 1]) < 128:
            position += 2
            offset = base_offset + (number + (second << 7) - 128 >> 1)
        else:
            number, position = decode_varint(data, position)
            offset = base_offset + number
        # An encoded length is even; only null, -1, is odd.
        key = value = None
        length = data[position]
        if length < 128 and not length & 1:
            start = position + 1
            position = start + (length >> 1)
            key = data[start:position]
        elif length == NULL_VARINT:
            position += 1
        else:
            length, position = decode_varint(data, position)
            if length != NULL:
                key, position = _read_field(data, position, length)
        length = data[position]
        if length < 128 and not length & 1:
            start = position + 1
            position = start + (length >> 1)
            value = data[start:position]
        elif length == NULL_VARINT:
            position += 1
        elif not length & 1 and (second := data[position + 1]) < 128:
            start = position + 2
            position = start + (length + (second << 7) - 128 >> 1)
            value = data[start:position]
        else:
            length, position = decode_varint(data, position)
            if length != NULL:
                value, position = _read_field(data, position, length)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if headers_max is not None:
            if position >= end:
                raise DecodeError(f"a record ends {position - end} bytes late", buffer=data, position=end)
            if headers_max:
                headers, position = _read_headers(data, position, headers_max)
            position = max(position, end)
        elif data[position]:
            headers, position = _read_headers(data, position, len(data))
        else:
            position += 1
        if position != end:
            raise DecodeError(f"a record ends {position - end} bytes late", buffer=data, position=end)
        fields += (offset, timestamp, key, value, headers)
    return fields, position


def _read_field(data: bytes, position: int, length: int) -> tuple[bytes, int]:
    if length < 0:
        raise DecodeError(f"a field of {length} bytes", buffer=data, position=position)
    return data[position : position + length], position + length


def _read_headers(data: bytes, position: int, headers_max: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Audited records have one header each: the common case is read inline, too."""
    length = data[position]
    position += 1
    if length < 128:
        count = length >> 1 ^ -(length & 1)
    else:
        count, position = decode_varint(data, position - 1)
    if not 0 <= count <= len(data):
        raise DecodeError(f"a record with {count} headers", buffer=data, position=position)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(min(count, headers_max)):
        length = data[position]
        position += 1
        if length < 128:
            length = length >> 1 ^ -(length & 1)
        else:
            length, position = decode_varint(data, position - 1)
        if length < 0 or position + length > len(data):
            raise DecodeError(f"a header key of {length} bytes", buffer=data, position=position)
        try:
            key = _names[data[position : position + length]]
        except UnicodeDecodeError:
            raise DecodeError("a header key is not UTF-8", buffer=data, position=position) from None
        position += length
        length = data[position]
        position += 1
        if length < 128:
            length = length >> 1 ^ -(length & 1)
        else:
            length, position = decode_varint(data, position - 1)
        value = None
        if length >= 0:
            value = data[position : position + length]
            position += length
        headers.append((key, value))
    return tuple(headers), position


class _Names(dict[bytes, str]):
    """Header keys as text: an application has a few of them, which repeat with every record."""

    def __missing__(self, raw: bytes) -> str:
        name = raw.decode()
        if len(raw) <= NAME_BYTES_MAX:
            if len(self) >= NAMES_MAX:
                self.clear()
            self[raw] = name
        return name


NAME_BYTES_MAX: Final = 64
NAMES_MAX: Final = 1024
"""How many names are cached, for peers that never repeat a name."""
_names: Final = _Names()
_BY_COLUMN: Final = isinstance(_read_records, FunctionType)
"""Whether reading whole columns is faster: not if the loop over single records is compiled."""
