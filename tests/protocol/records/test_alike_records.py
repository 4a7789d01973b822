"""Records that are alike give the same result as when each is read field by field."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records import walk as records_walk
from anabranch.protocol.records.walk import Walked, walk
from anabranch.protocol.varint import decode_varint, encode_varint
from tests.protocol.records.test_walk import agreed


def written(index: int, value: bytes, *, key: bytes | None = b"key", late_ms: int = 0) -> bytes:
    """A record without headers, as producers write it."""
    key_field = encode_varint(-1) if key is None else encode_varint(len(key)) + key
    body = b"\0" + encode_varint(late_ms) + encode_varint(index) + key_field + encode_varint(len(value)) + value + b"\0"
    return encode_varint(len(body)) + body


SHAPES: dict[str, Callable[[int], bytes]] = {
    "short": lambda index: written(index, bytes(30 - index % 9)),
    "long": lambda index: written(index, bytes(100 + index % 50)),
    "without keys": lambda index: written(index, bytes(100), key=None),
    "short, without keys": lambda index: written(index, bytes(20), key=None),
    "late": lambda index: written(index, bytes(100), late_ms=70 + index),
    "short and late": lambda index: written(index, bytes(20), late_ms=8000 + index),
    "keys of every length": lambda index: written(index, bytes(70), key=bytes(index % 66)),
    "around the first length of two bytes": lambda index: written(index, bytes(50 + index % 20)),
    "around the first length of three bytes": lambda index: written(index, bytes(8170 + index % 20)),
}


def outcome(content: bytes, count: int) -> Walked | str:
    """What a walk has found, or why it refuses."""
    try:
        walked = walk(content, count)
    except DecodeError as error:
        return str(error)
    return walked._replace(min_timestamp_delta=min(walked.min_timestamp_delta, 0))


def slowly(content: bytes, count: int) -> Walked | str:
    """The same when every record is looked at by itself, field by field."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            records_walk, "_walk_common", lambda data, position, end, first, last, most: (position, first, 0, False, 0)
        )
        patch.setattr(records_walk, "walk_alike", lambda _, position, first, last: (position, first, 0, False, 0))
        return outcome(content, count)


@pytest.mark.parametrize("shape", SHAPES)
def test_change_in_similar_records_gives_same_result_as_reference(shape: str) -> None:
    """Changes a byte of one record after another, also where offset deltas get longer."""
    count = 132
    content = b"".join(map(SHAPES[shape], range(count)))
    assert agreed(content, count)
    assert outcome(content, count) == slowly(content, count)
    starts = [0]
    while starts[-1] < len(content):
        size, start = decode_varint(content, starts[-1])
        starts.append(start + size)
    for index in (0, 1, 63, 64, 131):
        start, end = starts[index], starts[index + 1]
        for position in {*range(start, min(start + 12, end)), *range(start, end, max(7, (end - start) // 9)), end - 1}:
            for byte in {content[position] ^ 1, content[position] ^ 0x80, content[position] + 2 & 255, 0, 255}:
                changed = bytearray(content)
                changed[position] = byte
                assert outcome(bytes(changed), count) == slowly(bytes(changed), count), (index, position - start, byte)


LONG = SHAPES["long"](40)
ODD = {
    "a key of -2 bytes": LONG.replace(b"\x06key", b"\x03key", 1),
    "a key of -2 bytes and one more": b"\xb0\x01" + b"\0\0\x50\x03" + b"k" + encode_varint(80) + bytes(80) + b"\0",
    "a key beyond its record": b"\x80\x01" + b"\0\0\x50\x7e" + bytes(63) + encode_varint(8186) + bytes(200),
}


@pytest.mark.parametrize("shape", ["long", "short", "without keys"])
@pytest.mark.parametrize("odd", ODD)
def test_irregular_record_among_similar_ones_gives_same_result_as_reference(odd: str, shape: str) -> None:
    """It is refused although its total length is right, or nearly."""
    content = b"".join(map(SHAPES[shape], range(40))) + ODD[odd] + b"".join(map(SHAPES[shape], range(41, 60)))
    assert outcome(content, 60) == slowly(content, 60)


@pytest.mark.parametrize("cut_bytes", range(1, 12))
@pytest.mark.parametrize("last_byte", [0, 2])
def test_record_that_ends_in_next_piece_gives_same_result_as_reference(cut_bytes: int, last_byte: int) -> None:
    """Bytes of the next piece are not assumed."""
    records = [written(index, bytes(80)) for index in range(1000)]
    target = (1 << 16) + cut_bytes
    for first_bytes in range(80, 200):
        records[0] = written(0, bytes(first_bytes))
        lengths = [*itertools.accumulate(map(len, records))]
        if target in lengths:
            break
    crossing = lengths.index(target)
    records[crossing] = records[crossing][:-1] + bytes((last_byte,))
    content = b"".join(records)
    assert outcome(content, 1000) == slowly(content, 1000)
    assert isinstance(outcome(content, 1000), str) == bool(last_byte)
