"""The records of a batch, one after the other.

A record is a length, then varints and bytes, each relative to its batch: timestamp and offset are deltas. Reference:
KIP-98, `DefaultRecord` of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import CODEC_MASK, HEADER_BYTES, LOG_OVERHEAD_BYTES, Buffer, read_header
from anabranch.protocol.records.compression import Compression, decompress
from anabranch.protocol.varint import decode_varint, decode_varlong

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record as an application sees it, with its absolute offset."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def iter_records(batch: Buffer, position: int = 0) -> Iterator[Record]:
    """The records of one batch, oldest first. Raises DecodeError where the bytes stop making sense.

    Control batches iterate too: a caller that hands records to an application looks at the header first.
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
    """Records that are audited have a header each: what is common is read in line here, too."""
    length = data[position]
    position += 1
    if length < 128:
        count = length >> 1 ^ -(length & 1)
    else:
        count, position = decode_varint(data, position - 1)
    if not 0 <= count <= len(data):
        raise DecodeError(f"a record with {count} headers", buffer=data, position=position)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
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
    """Header keys as text: an application has a few of them, which come with every record."""

    def __missing__(self, raw: bytes) -> str:
        name = raw.decode()
        if len(raw) <= NAME_BYTES_MAX:
            if len(self) >= NAMES_MAX:
                self.clear()
            self[raw] = name
        return name


NAME_BYTES_MAX: Final = 64
NAMES_MAX: Final = 1024
"""How many names are remembered, for peers that never send the same name twice."""
_names: Final = _Names()
