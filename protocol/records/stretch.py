"""Reads consecutive records with equal field sizes, column by column instead of record by record.

If each record of a batch has a key, a value and deltas of the same sizes as the one before, every field has the same
position in its record: a slice with a step reads one byte of each, and one call extracts all keys and values. The
checks are exactly those of the loop over single records: every length is the first one's, every offset is the next one,
timestamps are not before the batch's. Anything else ends the stretch before it.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import Any, Final

RECORDS_MIN: Final = 32
"""Shorter stretches are read one by one."""
NO_HEADERS: Final = ()
_ONE_BYTE: Final = 64
_TWO_BYTES: Final = 8192
"""The first numbers that exceed one byte, and two."""

_EVEN: Final = bytes(range(0, 128, 2))
_LOW: Final = bytes(range(128, 256, 2)) * (_TWO_BYTES // _ONE_BYTE)
_HIGH: Final = bytes(chain.from_iterable([high] * _ONE_BYTE for high in range(_TWO_BYTES // _ONE_BYTE)))
"""How zigzag writes numbers that are not negative: in one byte, and in two of which the first has the low bits."""
_EVEN_LARGE: Final = bytes(range(128, 256, 2))
_SMALL: Final = bytes(range(128))

Columns = tuple[list[int], list[int], list[bytes | None], list[bytes | None], list[Any]]


def read_stretch(data: bytes, position: int, count: int, base_offset: int, base_timestamp: int) -> Columns | None:
    """Read offsets, timestamps, keys, values and headers of up to `count` records from `position` on; None if they
    differ.

    They fill the bytes from `position` on without gaps: the size of one is `size_of`.
    """
    shape = _shape(data, position)
    if shape is None:
        return None
    size, time_at, offset_at, key_at, key_bytes, value_at, value_bytes = shape
    delta = data[offset_at]
    if delta < 128:
        first, last, offset_bytes = delta >> 1, _ONE_BYTE, 1
    else:
        first, last, offset_bytes = (delta & 127 | data[offset_at + 1] << 7) >> 1, _TWO_BYTES, 2
    count = min(count, last - first, (len(data) - position) // size)
    alike = [*range(position, time_at - 1), key_at - 1, *range(key_at + key_bytes, value_at), position + size - 1]
    checks = [(at, data[at : at + 1]) for at in alike]
    checks += [(time_at, _EVEN)] if offset_at - time_at == 1 else [(time_at, _EVEN_LARGE), (time_at + 1, _SMALL)]
    for at, allowed in checks:
        count -= len(data[at : position + size * count : size].lstrip(allowed))
    if count < RECORDS_MIN:
        return None
    end, after = position + size * count, first + count
    if offset_bytes == 1:
        in_sequence = data[offset_at:end:size] == _EVEN[first:after]
    else:
        low, high = data[offset_at:end:size], data[offset_at + 1 : end : size]
        in_sequence = low == _LOW[first:after] and high == _HIGH[first:after]
    if not in_sequence:
        return None
    layout = f"{key_at - position}x{key_bytes}s{value_at - key_at - key_bytes}x{value_bytes}sx"
    keys, values = zip(*struct.iter_unpack(layout, memoryview(data)[position:end]), strict=True)
    offset = base_offset + first
    return (
        list(range(offset, offset + count)),
        _timestamps(data[time_at:end:size], data[time_at + 1 : end : size], offset_at - time_at, base_timestamp),
        [None] * count if data[key_at - 1] == 1 else list(keys),
        list(values),
        [NO_HEADERS] * count,
    )


def size_of(data: bytes, position: int) -> int:
    """Return the size of a stretch's record that begins here."""
    number = data[position]
    return 1 + (number >> 1) if number < 128 else 2 + ((number & 127 | data[position + 1] << 7) >> 1)


def _shape(data: bytes, position: int) -> tuple[int, int, int, int, int, int, int] | None:
    """Return the size, field positions and field lengths of a record without headers and with short numbers."""
    try:
        number = data[position]
        size = size_of(data, position)
        time_at = position + (2 if number < 128 else 3)
        offset_at = time_at + (1 if data[time_at] < 128 else 2)
        key_at = offset_at + (2 if data[offset_at] < 128 else 3)
        length = data[key_at - 1]
        if number & 1 or length > 127 or (length & 1 and length != 1):
            return None
        key_bytes = length >> 1
        value_at = key_at + key_bytes + 1
        length = data[value_at - 1]
        if length > 127:
            length = length & 127 | data[value_at] << 7
            value_at += 1
        if length & 1 or length >= 2 * _TWO_BYTES or value_at + (length >> 1) + 1 != position + size:
            return None
        if data[position + size - 1] or data[position + size] != number:
            return None
    except IndexError:
        return None
    return size, time_at, offset_at, key_at, key_bytes, value_at, length >> 1


def _timestamps(low: bytes, high: bytes, size: int, base: int) -> list[int]:
    """Return the timestamps from the first and second bytes of their deltas."""
    if size == 1:
        if low == low[:1] * len(low):
            return [base + (low[0] >> 1)] * len(low)
        return [base + (number >> 1) for number in low]
    if low == low[:1] * len(low) and high == high[:1] * len(low):
        return [base + ((low[0] & 127 | high[0] << 7) >> 1)] * len(low)
    return [base + ((one & 127 | other << 7) >> 1) for one, other in zip(low, high, strict=True)]
