"""Walks over records that have the same shape as the first one, as nearly all records of a batch do.

One read covers all fields before a key. Such a walk accepts nothing that a walk field by field refuses: at the first
record of another shape it stops, and `walk` continues.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Callable
from itertools import chain
from typing import Final, NamedTuple

ONE_BYTE: Final = 64
TWO_BYTES: Final = 8192
"""The first lengths and deltas that exceed one byte, and two."""


# A number as zigzag writes it in one or two bytes, read as an integer whose low byte comes first, is here its code.
_HIGH_BYTES: Final = range(1, 128)
"""Each follows 64 low ones, whose flag announces it."""
_CODES: Final = [*range(0, 128, 2), *chain.from_iterable(range(h << 8 | 128, h + 1 << 8, 2) for h in _HIGH_BYTES)]
_VALUE_CODES: Final = [*[-1] * ONE_BYTE, *_CODES[ONE_BYTE:], *[-1] * 128]
"""Length -> its code of two bytes; -1 where it has another size. A record that is too short for its key leaves a length
below zero to its value, which counts from the end of the list."""
_RECORD_SIZES: Final = [-1] * (1 << 15)
"""Code of two bytes -> how many bytes a record has that begins with it, these two included."""
for _high in _HIGH_BYTES:
    _RECORD_SIZES[_high << 8 | 128 : _high + 1 << 8 : 2] = range(_high * 64 + 2, _high * 64 + 66)
_TWO: Final = struct.Struct("<H")


class _Shape(NamedTuple):
    """The sizes of the fields before the keys, and the required bits in them."""

    head: Callable[[bytes, int], tuple[int, int, int, int]]
    """Reads size, timestamp delta, offset delta and the key's length at a position."""
    head_bytes: int
    time_bits: int
    time_mask: int
    """Of the timestamp delta: whether a second byte follows, and the sign."""
    key_bits: int
    key_mask: int
    """Of the key's length: one byte and not negative, or -1 for no key."""


_SHAPES: Final = {
    (size, time, offset, keyless): _Shape(
        struct.Struct("<" + "xBH"[size] + "x" + "xBH"[time] + "xBH"[offset] + "B").unpack_from,
        size + 1 + time + offset + 1,
        *((0, 0x81) if time == 1 else (0x80, 0x8081)),
        *((1, 0xFF) if keyless else (0, 0x81)),
    )
    for size in (1, 2)
    for time in (1, 2)
    for offset in (1, 2)
    for keyless in (False, True)
}
"""By the bytes of size, timestamp delta and offset delta, and by whether there are no keys."""


def walk_alike(data: bytes, position: int, first: int, last: int) -> tuple[int, int, int, bool, int]:
    """Walk over records with the first one's shape, so that one read covers all fields before their keys.

    No headers, keys of less than 64 bytes, and less than 8 KB in all: most batches consist of such records. Returns the
    same as `walk._walk_common`.
    """
    try:
        size = 1 if data[position] < 128 else 2
        time = 1 if data[position + size + 1] < 128 else 2
        offset = 1 if first < ONE_BYTE else 2
        keyless = data[position + size + 1 + time + offset] == 1
    except IndexError:
        return position, first, 0, False, 0
    codes = _CODES[first : min(last, ONE_BYTE) if first < ONE_BYTE else last]
    walk = _walk_short if size == 1 else _walk_long
    position, walked, latest = walk(data, position, codes, _SHAPES[size, time, offset, keyless])
    return position, first + walked, (latest & 127 | latest >> 8 << 7) >> 1, keyless, 0


def _walk_short(data: bytes, position: int, codes: list[int], shape: _Shape) -> tuple[int, int, int]:
    """Walk over records of less than 64 bytes with these offset deltas: return the end, the count, the latest time."""
    head, head_bytes, time_bits, time_mask, key_bits, key_mask = shape
    latest = expected = 0
    try:
        for expected in codes:
            size, time, offset, key = head(data, position)
            if offset != expected or (time ^ time_bits) & time_mask or (key ^ key_bits) & key_mask or size & 0x81:
                break
            at = position + head_bytes + (key >> 1)
            following = position + 1 + (size >> 1)
            if data[at] != (following - at - 2) << 1 or data[following - 1]:
                break
            position = following
            if time > latest:
                latest = time
        else:
            return position, len(codes), latest
    except (IndexError, struct.error):
        pass
    return position, bisect_left(codes, expected), latest


def _walk_long(data: bytes, position: int, codes: list[int], shape: _Shape) -> tuple[int, int, int]:
    """Walk over records of 64 bytes and more, with values of 64 bytes and more."""
    head, head_bytes, time_bits, time_mask, key_bits, key_mask = shape
    two, sizes, values = _TWO.unpack_from, _RECORD_SIZES, _VALUE_CODES
    latest = expected = 0
    try:
        for expected in codes:
            size, time, offset, key = head(data, position)
            if offset != expected or (time ^ time_bits) & time_mask or (key ^ key_bits) & key_mask:
                break
            at = position + head_bytes + (key >> 1)
            following = position + sizes[size]
            if two(data, at)[0] != values[following - at - 3] or data[following - 1]:
                break
            position = following
            if time > latest:
                latest = time
        else:
            return position, len(codes), latest
    except (IndexError, struct.error):
        pass
    return position, bisect_left(codes, expected), latest
