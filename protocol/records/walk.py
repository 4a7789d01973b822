"""Validates the records of a batch against its header, by their lengths alone.

A walk goes from record to record without creating objects: every length lies within its record, every record fills
exactly the bytes that it declares, there are as many as declared, and nothing follows the last one. It refuses
(DecodeError) what some consumer's decoder would refuse later, with no way past the batch; so it is a little stricter
than Kafka, which accepts a null that is not written as -1, a header's name that is not UTF-8, and a wrong record length
in a compressed batch.

Records that are alike need one read for all fields before a key (`alike_records`); others are read field by field, and
unusual ones by the functions that report errors.

It proceeds in steps, between which a broker can do other work, and returns all facts that rules about single records
need: a caller that has to know which records break one asks `iter_outlines`. Reference: `DefaultRecord.readFrom`,
`DefaultRecordBatch.RecordIterator` of Kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.alike_records import ONE_BYTE, TWO_BYTES, walk_alike
from anabranch.protocol.records.batch import Buffer
from anabranch.protocol.varint import decode_varint, decode_varlong

STEP_RECORDS: Final = 4096
"""The maximum of records and headers per step: one or two milliseconds of work."""
_PIECE_BYTES: Final = 1 << 16
"""How many bytes are copied at a time."""
_SEVEN: Final = struct.Struct("x7B")
_PADDING: Final = b"\xff" * 10
"""After a piece: no record that reaches into it looks whole."""
_QUICK_RECORDS: Final = 1 << 27
"""Up to here an offset delta has at most four bytes."""
_ALIKE_RECORDS_MIN: Final = 32
"""How many consecutive records must be alike for the fast path. After a failed attempt, twice as many as the last time
are read one by one before the next."""


class Walked(NamedTuple):
    """Facts about all records of a batch."""

    max_timestamp_delta: int
    min_timestamp_delta: int
    """No record is older than that; 0 where no record is older than the batch's base timestamp."""
    has_null_key: bool
    in_sequence: bool
    """Whether their offset deltas are 0, 1, 2 and so on."""


class WalkBudget:
    """How many records and headers may be walked before other work runs; several walks may share one."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = STEP_RECORDS

    def spend(self, count: int) -> bool:
        """Spend budget; return whether it is used up; then the next one begins."""
        self.left -= count
        if self.left > 0:
            return False
        self.left = STEP_RECORDS
        return True


class Outline(NamedTuple):
    """One record without its contents."""

    timestamp_delta: int
    offset_delta: int
    has_key: bool


class RecordLengthError(DecodeError):
    """A record begins with a length of more than five bytes."""


def walk(content: Buffer, count: int) -> Walked:
    """Validate all records at once; `content` is uncompressed. Raises DecodeError."""
    steps = iter_walk(content, count)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            walked: Walked = end.value
            return walked


def walk_few(content: Buffer, count: int) -> Walked | None:
    """Validate a small batch of common records in one step; return None if `iter_walk` has to."""
    size_bytes = len(content)
    if not 0 < count < _ALIKE_RECORDS_MIN or size_bytes > _PIECE_BYTES:
        return None
    piece = b"".join((content, _PADDING))
    end, reached, latest, has_null_key, _ = _walk_common(piece, 0, size_bytes, 0, count, STEP_RECORDS)
    return Walked(latest, 0, has_null_key, True) if reached == count and end == size_bytes else None


def iter_walk(content: Buffer, count: int, budget: WalkBudget | None = None) -> Generator[None, None, Walked]:
    """Validate all records in steps: yield whenever the budget is used up. Raises DecodeError while iterating."""
    budget = budget or WalkBudget()
    view = memoryview(content)
    size_bytes = len(view)
    piece, base, end = b"", 0, 0
    position = index = 0
    highest, lowest = -1 << 63, 1 << 63
    has_null_key, in_sequence = False, True
    walk_on = _Quick().walk if count >= _ALIKE_RECORDS_MIN else _walk_common
    while index < count:
        if position >= end:
            base, end = position, min(position + _PIECE_BYTES, size_bytes)
            piece = b"".join((view[base:end], _PADDING))
        last = min(count, index + budget.left)
        following, reached, latest, keyless, headers = walk_on(
            piece, position - base, end - base, index, last, budget.left
        )
        if reached == index and base < position and end - position < TWO_BYTES and end < size_bytes:
            end = position  # the rest of the record may be in the next piece
            continue
        if reached > index:
            position, index, first = base + following, reached, index
            highest, lowest = max(highest, latest), min(lowest, 0)
            has_null_key = has_null_key or keyless
        else:
            outline, at, position = _head(view, position)
            headers = yield from _iter_rest(view, at, position)
            highest, lowest = max(highest, outline.timestamp_delta), min(lowest, outline.timestamp_delta)
            has_null_key = has_null_key or not outline.has_key
            in_sequence = in_sequence and outline.offset_delta == index
            index, first = index + 1, index
        if budget.spend(index - first + headers):
            yield
    if position != size_bytes:
        raise DecodeError(f"{size_bytes - position} bytes after the last record", buffer=content, position=position)
    return Walked(highest, lowest, has_null_key, in_sequence)


def iter_outlines(content: Buffer, count: int) -> Iterator[Outline]:
    """Yield an outline of every record of valid content."""
    view = memoryview(content)
    position = 0
    for _ in range(count):
        outline, _, position = _head(view, position)
        yield outline


class _Quick:
    """Walks over common records, with the method that worked for those before them."""

    __slots__ = ("_alike_from", "_pause")

    def __init__(self) -> None:
        self._alike_from = 0
        self._pause = _ALIKE_RECORDS_MIN

    def walk(
        self, data: bytes, position: int, end: int, first: int, last: int, headers_max: int
    ) -> tuple[int, int, int, bool, int]:
        """Return the end, the next record, the latest timestamp delta, whether there was a null key, and the header
        count.

        It stops at `last` or before an unusual record, which may be the first one: that is left to the caller.
        """
        if first >= TWO_BYTES:
            return _walk_common(data, position, end, first, min(last, _QUICK_RECORDS), headers_max)
        if first >= self._alike_from:
            walked = walk_alike(data, position, first, last)
            reached = walked[1]
            if reached in (last, ONE_BYTE) or reached - first >= _ALIKE_RECORDS_MIN:
                return walked
            many = first - self._alike_from >= _ALIKE_RECORDS_MIN
            if reached == first and many and end - position < TWO_BYTES:
                # It may only continue in the next piece.
                return _walk_common(data, position, end, first, last, headers_max)
            self._pause = _ALIKE_RECORDS_MIN if many else self._pause * 2
            self._alike_from = reached + self._pause
            if reached > first:
                return walked
        last = min(last, self._alike_from)
        return _walk_common(data, position, end, first, last, headers_max)


def _walk_common(  # noqa: PLR0915 -- one flat loop, in which each call would cost as much as a field
    data: bytes, position: int, end: int, first: int, last: int, headers_max: int
) -> tuple[int, int, int, bool, int]:
    """Walk over common records; unusual ones are left to `_head` and `_iter_rest`.

    Lengths have one or two bytes, timestamps do not fall, offsets do not jump. Seven bytes, read at once, cover the
    fields between a record's attributes and its key. It stops after the record that reaches `headers_max` headers.
    Returns the end, the next record, the latest timestamp delta, whether there was a null key, and the header count.
    """
    latest = headers = 0
    has_null_key = False
    expected = first + first
    unpack = _SEVEN.unpack_from
    try:
        for expected in range(first + first, last + last, 2):  # offset deltas, as zigzag writes them
            size = data[position]
            start = position + 1
            if size > 127:
                b = data[start]
                if b > 127:
                    break
                size += (b << 7) - 128
                start += 1
            c, d, e, f, g, h, i = unpack(data, start)
            at = start + 4
            if c > 127:
                if d > 127:
                    break
                c += (d << 7) - 128
                d, e, f, g, h = e, f, g, h, i
                at += 1
            if d < 128:
                key = e
            elif e < 128:
                d += (e << 7) - 128
                key = f
                at += 1
            elif f < 128:
                d += (e << 7) + (f << 14) - 16512
                key = g
                at += 2
            else:
                d += (e << 7) + (f << 14) + (g << 21) - 2113664
                key = h
                at += 3
            if d != expected or c & 1:
                break
            if key > 127:
                b = data[at]
                if b > 127:
                    break
                key += (b << 7) - 128
                at += 1
            if not key & 1:
                at += key >> 1
            elif key == 1:
                has_null_key = True  # also for an unusual record, which is read again
            else:
                break
            value = data[at]
            at += 1
            if value > 127:
                b = data[at]
                if b > 127:
                    break
                value += (b << 7) - 128
                at += 1
            if not value & 1:
                at += value >> 1
            elif value != 1:
                break
            b = data[at]
            at += 1
            if b:
                if b > 127 or b & 1:
                    break
                at = _after_headers(data, at, b >> 1, end)
                headers += b >> 1
                if headers >= headers_max:
                    last = 0
            if at - start << 1 != size or at > end:
                break
            position = at
            if c > latest:
                latest = c
            if not last:
                expected += 2
                break
        else:
            expected = last + last
    except (IndexError, DecodeError):
        pass
    return position, expected >> 1, latest >> 1, has_null_key, headers


def _head(data: memoryview, position: int) -> tuple[Outline, int, int]:
    """Read any record up to its value; return the value's start and the record's end."""
    if position >= len(data):
        raise DecodeError("the records are cut off", buffer=data, position=position)
    try:
        size, start = decode_varint(data, position)
    except DecodeError as reason:
        if "more than" in str(reason):
            raise RecordLengthError(f"the length of a record: {reason}", buffer=data, position=position) from None
        raise
    end = start + size
    if size < 0 or end > len(data):
        raise DecodeError(f"a record of {size} bytes does not fit", buffer=data, position=position)
    timestamp_delta, at = decode_varlong(data, start + 1)
    offset_delta, at = decode_varint(data, at)
    key_size, at = _after_bytes(data, at, end)
    return Outline(timestamp_delta, offset_delta, key_size >= 0), at, end


def _iter_rest(data: memoryview, position: int, end: int) -> Generator[None, None, int]:
    """Validate value and headers of any record, in steps. Returns the header count of the last step.

    Raises DecodeError unless they fill the record.
    """
    _, at = _after_bytes(data, position, end)
    count, at = decode_varint(data, at)
    if not 0 <= count <= end - at:
        raise DecodeError(f"a record with {count} headers", buffer=data, position=at)
    for first in range(0, count, STEP_RECORDS):
        if first:
            yield
        try:
            at = _after_headers(data, at, min(STEP_RECORDS, count - first), end)
        except IndexError:
            raise DecodeError("a record's headers are cut off", buffer=data, position=at) from None
    if at != end:
        raise DecodeError(f"a record ends {at - end} bytes late", buffer=data, position=end)
    return count % STEP_RECORDS


def _after_headers(data: Buffer, position: int, count: int, end: int) -> int:
    """Audited records have one header each: short ones, with one-byte lengths, are read inline."""
    for _ in range(count):
        size = data[position]
        if size < 128 and not size & 1:
            start = position + 1
            position = start + (size >> 1)
        else:
            size, start = decode_varint(data, position)
            if size < 0:
                raise DecodeError("a header without a name", buffer=data, position=position)
            position = start + size
        if position >= end:
            raise DecodeError(f"a header's name of {position - start} bytes", buffer=data, position=start)
        try:
            str(data[start:position], "utf-8")
        except UnicodeDecodeError:
            raise DecodeError("a header's name is not UTF-8", buffer=data, position=start) from None
        size = data[position]
        if size < 128 and not size & 1:
            position += 1 + (size >> 1)
        else:
            _, position = _after_bytes(data, position, end)
    return position


def _after_bytes(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Return the length of a field, -1 for null, and its end."""
    size, position = decode_varint(data, position)
    if size > 0:
        position += size
    if size < -1 or position > end:
        raise DecodeError(f"a field of {size} bytes", buffer=data, position=position)
    return size, position
