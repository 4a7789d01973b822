"""Records of equal sizes are decoded column by column, with the same result as the loop."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import HEADER_BYTES
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.record import _BY_COLUMN, FIELDS, Columns, Record, RecordReader, _read_records
from anabranch.protocol.records.stretch import RECORDS_MIN, read_stretch, size_of
from tests.cases import for_each

BASE_MS = 1_700_000_000_000
AT_ONCE = 500


def built(count: int, key: Callable[[int], bytes | None], size: Callable[[int], int], per_ms: float = 50) -> bytes:
    """A batch of so many records."""
    builder = BatchBuilder(limit_bytes=1 << 26)
    for number in range(count):
        assert builder.append(key(number), bytes([number % 251]) * size(number), (), BASE_MS + int(number / per_ms))
    return bytes(builder.build())


def one_by_one(batch: bytes, count: int) -> list[Record]:
    """The first records of a batch by the loop alone."""
    fields, _ = _read_records(batch[HEADER_BYTES:], 0, count, 0, BASE_MS)
    return list(map(Record._make, zip(*(fields[column::FIELDS] for column in range(FIELDS)), strict=True)))


def read(batch: bytes) -> tuple[list[Record], bool]:
    """What the reader finds of a batch, and whether it has found it sound."""
    found: list[Record] = []
    try:
        reader = RecordReader(batch)
        while reader.left:
            found += map(Record._make, zip(*reader.read(AT_ONCE), strict=True))
    except DecodeError:
        return found, False
    return found, True


def stretches(batch: bytes, count: int) -> list[int]:
    """How many records each stretch has, and 0 where one record is left to the loop."""
    data, position, found = batch[HEADER_BYTES:], 0, []
    while (left := count - sum(found)) >= RECORDS_MIN:
        columns = read_stretch(data, position, left, 0, BASE_MS)
        if columns is None:
            return [*found, 0]
        found.append(len(columns[0]))
        position += found[-1] * size_of(data, position)
    return found


SHAPES = [
    pytest.param(lambda n: b"%08d" % n, lambda n: 100, id="100 B"),
    pytest.param(lambda n: b"%08d" % n, lambda n: 1024, id="1 KiB"),
    pytest.param(lambda n: b"%08d" % n, lambda n: 0, id="empty values"),
    pytest.param(lambda n: b"", lambda n: 40, id="empty keys"),
    pytest.param(lambda n: None, lambda n: 63, id="no keys, 63 B"),
    pytest.param(lambda n: None, lambda n: 64, id="no keys, 64 B"),
    pytest.param(lambda n: b"k" * 63, lambda n: 8000, id="long keys, 8,000 B"),
]


@pytest.mark.parametrize("per_ms", [0.5, 50, 1e9])
@pytest.mark.parametrize(("key", "size"), SHAPES)
def test_records_of_equal_size_are_decoded_together(
    key: Callable[[int], bytes | None], size: Callable[[int], int], per_ms: float
) -> None:
    count = 1000
    batch = built(count, key, size, per_ms)
    assert read(batch) == (one_by_one(batch, count), True)
    found = stretches(batch, count)
    assert found[0] in (64, 32) and 0 not in found and len(found) <= 4, found


@pytest.mark.parametrize(
    ("key", "size"),
    [
        (lambda n: b"key", lambda n: n % 5),
        (lambda n: b"k" * (n % 3), lambda n: 10),
        (lambda n: b"k" if n % 2 else None, lambda n: 10),
        (lambda n: b"k" * (n % 2), lambda n: 11 - n % 2),
        (lambda n: b"k" * 64, lambda n: 100),
        (lambda n: b"key", lambda n: 100 if n < 40 else 101),
    ],
)
def test_unequal_records_are_decoded_one_by_one(key: Callable[[int], bytes | None], size: Callable[[int], int]) -> None:
    batch = built(300, key, size)
    assert stretches(batch, 300)[-1] == 0
    assert read(batch) == (one_by_one(batch, 300), True)


def test_offsets_beyond_two_bytes_end_a_stretch() -> None:
    batch = built(8300, lambda n: b"key", lambda n: 10)
    assert read(batch) == (one_by_one(batch, 8300), True)
    assert sum(stretches(batch, 8300)) == 8192


def compare(batch: bytearray, count: int) -> None:
    """What the reader finds of a damaged batch is what the loop finds."""
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    found, sound = read(bytes(batch))
    assert found == one_by_one(bytes(batch), len(found))
    try:
        _, end = _read_records(bytes(batch[HEADER_BYTES:]), 0, count, 0, BASE_MS)
    except (DecodeError, IndexError):
        assert not sound
    else:
        assert sound == (end == len(batch) - HEADER_BYTES)
        assert not sound or len(found) == count


def damage(batch: bytearray, rng: random.Random) -> None:
    """Change, double or drop one byte of the records."""
    at = rng.randrange(HEADER_BYTES, len(batch))
    match rng.randrange(3):
        case 0:
            batch[at] = rng.randrange(256)
        case 1:
            batch.insert(at, batch[at])
        case _:
            del batch[at]


@for_each(range(200))
def test_damaged_batch_gives_same_result_as_loop(seed: int) -> None:
    """Changes, doubles or drops a byte of a valid batch at any position."""
    rng = random.Random(seed)
    count = rng.choice([40, 64, 100, 200])
    key, size = rng.choice([b"k" * 3, b"", None]), rng.choice([0, 3, 70])
    batch = bytearray(built(count, lambda n: key, lambda n: size, rng.choice([0.7, 50])))
    damage(batch, rng)
    compare(batch, count)


@pytest.mark.parametrize(("first", "count", "size"), [(40, 80, 3), (40, 80, 70), (600, 640, 3)])
def test_every_flipped_bit_gives_same_result_as_loop(first: int, count: int, size: int) -> None:
    """Flips each bit of one record and the next in a stretch. Later ones have two-byte deltas."""
    sound = built(count, lambda n: b"key", lambda n: size, 0.7 if first > 64 else 50)
    reader = RecordReader(sound)
    while reader.left > count - first:
        stretch = read_stretch(reader._data, reader._position, reader.left, 0, BASE_MS)
        reader.read(AT_ONCE)
    assert stretch is not None, "this record is read by the loop anyway"
    data, position = sound[HEADER_BYTES:], 0
    for _ in range(first):
        position += size_of(data, position)
    for at in range(position, position + 2 * size_of(data, position)):
        for bit in range(8):
            batch = bytearray(sound)
            batch[HEADER_BYTES + at] ^= 1 << bit
            compare(batch, count)


def test_record_beyond_declared_end_is_refused_in_a_stretch() -> None:
    batch = built(100, lambda n: b"key", lambda n: 10)
    last = 63 if _BY_COLUMN else 99  # of those that are read at once
    with pytest.raises(DecodeError, match=f"a record at offset {last}"):
        RecordReader(batch).read(AT_ONCE, before=40)


def test_log_append_time_overrides_timestamps_of_a_stretch() -> None:
    batch = bytearray(built(100, lambda n: b"key", lambda n: 10))
    batch[22] |= 8
    columns: Columns = RecordReader(bytes(batch)).read(AT_ONCE)
    assert set(columns.timestamps_ms) == {BASE_MS + 1}
