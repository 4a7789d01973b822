"""Reads records whose values differ in size, while the fields before the value have equal sizes.

Such records are typical of values without a fixed size: keys of one size, short deltas, no headers. One call reads the
fields before the value. The record's size determines that of its value, and the expected length field is computed once
per size. The checks are exactly those of the loop over single records: a record whose fields have other widths, or are
invalid, ends the reading before it, and the loop handles it.
"""

from __future__ import annotations

import struct
from typing import Final

from anabranch.protocol.records.stretch import NO_HEADERS, RECORDS_MIN, Columns

_ONE_BYTE: Final = 64
_TWO_BYTES: Final = 8192
"""The first numbers that exceed one byte, and two."""
LAYOUTS_MAX: Final = 64
SIZES_MAX: Final = 1024
"""How many layouts are cached, for varying key sizes, and how many record sizes for each."""


def _encode_length(number: int) -> int:
    """Return the zigzag varint of a length, its bytes as one little-endian number."""
    return number << 1 if number < _ONE_BYTE else number << 1 & 127 | 128 | number >> 6 << 8


def _needs(size: int, number: int) -> bool:
    """Whether a number takes exactly so many bytes, one or two."""
    return 0 <= number < _ONE_BYTE if size == 1 else _ONE_BYTE <= number < _TWO_BYTES


_OFFSETS: Final = (tuple(range(0, 128, 2)), tuple(map(_encode_length, range(_TWO_BYTES))))
"""The encodings of consecutive offsets: in one byte, and in two."""


class _Layout(dict[int, tuple[int, int]]):
    """Field positions: encoded record size -> the value's end, and its encoded length."""

    def __init__(self, size: int, time: int, offset: int, key: int, value: int) -> None:
        """Create a layout from the sizes of these fields; for the value, that of its length."""
        fields = struct.Struct(f"<{'_BH'[size]}x{'_BH'[time]}{'_BH'[offset]}B{key}s{'_BH'[value]}")
        self.fields = fields.unpack_from
        self.value_at = fields.size
        self.time_bytes = time
        self._widths = size, value

    def __missing__(self, size: int) -> tuple[int, int]:
        size_bytes, length_bytes = self._widths
        number = size >> 1 if size_bytes == 1 else (size & 127 | size >> 8 << 7) >> 1
        end = size_bytes + number - 1
        length = end - self.value_at
        sound = _needs(size_bytes, number) and _needs(length_bytes, length) and size == _encode_length(number)
        if len(self) >= SIZES_MAX:
            self.clear()
        self[size] = found = (end, _encode_length(length) if sound else -1)
        return found


_layouts: Final[dict[tuple[int, int, int, int, int], _Layout]] = {}


def read_uneven(
    data: bytes, position: int, count: int, base_offset: int, base_timestamp: int
) -> tuple[Columns, int] | None:
    """Read offsets, timestamps, keys, values and headers of up to `count` records from `position` on; return them and
    their end.

    None if too few are alike.
    """
    try:
        layout, key_length, first, offset_bytes = _begin(data, position)
    except IndexError:
        return None
    if layout is None:
        return None
    rows: list[tuple[int, int, int, int, bytes, int]] = []
    values: list[bytes | None] = []
    at, fields, value_at = position, layout.fields, layout.value_at
    try:
        for offset in _OFFSETS[offset_bytes - 1][first : first + count]:
            size, _, its_offset, length, _, value_length = row = fields(data, at)
            end, expected_length = layout[size]
            end += at
            if value_length != expected_length or its_offset != offset or length != key_length or data[end]:
                break
            values.append(data[at + value_at : end])
            rows.append(row)
            at = end + 1
    except (IndexError, struct.error):
        pass  # the last one is cut off
    if len(rows) < RECORDS_MIN:
        return None
    _, deltas, _, _, keys, _ = zip(*rows, strict=True)
    times = {delta: base_timestamp + _number(delta) for delta in set(deltas) if _is_sound(delta, layout.time_bytes)}
    try:
        timestamps = [times[delta] for delta in deltas]
    except KeyError:
        return None
    count = len(rows)
    offset = base_offset + first
    columns: Columns = (
        list(range(offset, offset + count)),
        timestamps,
        [None] * count if key_length == 1 else list(keys),
        values,
        [NO_HEADERS] * count,
    )
    return columns, at


def _begin(data: bytes, position: int) -> tuple[_Layout | None, int, int, int]:
    """Return a first record's layout, if it has one; its encoded key length; its offset, and the offset's size. Raises
    IndexError.
    """
    size_bytes = 1 if data[position] < 128 else 2
    at = position + size_bytes + 1
    time_bytes = 1 if data[at] < 128 else 2
    at += time_bytes
    number = data[at]
    offset_bytes = 1 if number < 128 else 2
    first = number >> 1 if number < 128 else (number & 127 | data[at + 1] << 7) >> 1
    at += offset_bytes
    length = data[at]
    if length > 127 or (length & 1 and length != 1):
        return None, 0, 0, 0
    key_bytes = length >> 1
    length_bytes = 1 if data[at + 1 + key_bytes] < 128 else 2
    name = (size_bytes, time_bytes, offset_bytes, key_bytes, length_bytes)
    layout = _layouts.get(name)
    if layout is None:
        if len(_layouts) >= LAYOUTS_MAX:
            _layouts.clear()
        layout = _layouts[name] = _Layout(*name)
    return layout, length, first, offset_bytes


def _is_sound(delta: int, size: int) -> bool:
    """Whether a timestamp's encoded delta has this size and is not negative."""
    return not delta & 1 and (delta < 128 if size == 1 else bool(delta & 128) and delta >> 8 < 128)


def _number(delta: int) -> int:
    return (delta & 127 | delta >> 8 << 7) >> 1
