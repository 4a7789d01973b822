"""Reads only the keys of records, one after the other.

For callers that need each key and no value, of unchecked records: invalid bytes are a DecodeError, wherever they occur.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import Buffer
from anabranch.protocol.varint import decode_varint, decode_varlong


def iter_keys(content: Buffer, count: int) -> Iterator[bytes | None]:
    """Yield the key of each record, None if it has none; `content` is `count` uncompressed records.

    One-byte varints, nearly all of them, are read inline.
    """
    data, position, size = memoryview(content), 0, len(content)
    try:
        for _ in range(count):
            length = data[position]
            if length < 128:
                length, position = length >> 1 ^ -(length & 1), position + 1
            else:
                length, position = decode_varint(data, position)
            end = position + length
            if length < 0 or end > size:
                raise DecodeError(f"a record of {length} bytes", buffer=content, position=position)
            position += 2  # attributes, and the first byte of the timestamp's delta
            if data[position - 1] > 127:
                _, position = decode_varlong(data, position - 1)
            position += 1
            if data[position - 1] > 127:
                _, position = decode_varint(data, position - 1)
            length = data[position]
            if length < 128:
                length, position = length >> 1 ^ -(length & 1), position + 1
            else:
                length, position = decode_varint(data, position)
            if position + length > end:
                raise DecodeError(f"a key of {length} bytes", buffer=content, position=position)
            yield bytes(data[position : position + length]) if length >= 0 else None
            position = end
    except IndexError:
        raise DecodeError("the records are cut off", buffer=content, position=size) from None
