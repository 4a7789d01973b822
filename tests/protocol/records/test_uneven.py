"""Records with values of different sizes are decoded in fewer steps, with the same result as the loop."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from anabranch.protocol.records import uneven
from anabranch.protocol.records.batch import HEADER_BYTES
from anabranch.protocol.records.record import RecordReader
from anabranch.protocol.records.stretch import RECORDS_MIN, read_stretch, size_of
from anabranch.protocol.records.uneven import read_uneven
from anabranch.protocol.varint import decode_varint
from tests.cases import for_each
from tests.protocol.records.test_stretch import AT_ONCE, BASE_MS, built, compare, damage, one_by_one, read


def lengths(batch: bytes, count: int) -> list[int]:
    """How many records are read at a time, and 0 where one record is left to the loop."""
    data, position, found = batch[HEADER_BYTES:], 0, list[int]()
    while (left := count - sum(found)) >= RECORDS_MIN:
        taken = read_uneven(data, position, left, 0, BASE_MS)
        if taken is None:
            return [*found, 0]
        columns, position = taken
        found.append(len(columns[0]))
    return found


@pytest.mark.parametrize("per_ms", [0.5, 50, 1e9])
@pytest.mark.parametrize(
    ("key", "size"),
    [
        pytest.param(lambda n: b"%08d" % n, lambda n: 100 + n % 7, id="100 to 106 B"),
        pytest.param(lambda n: b"%08d" % n, lambda n: 1024 + n * 7 % 1000, id="1 to 2 KiB"),
        pytest.param(lambda n: b"", lambda n: n % 40, id="empty keys, short values"),
        pytest.param(lambda n: None, lambda n: 64 + n % 3, id="no keys"),
        pytest.param(lambda n: b"k" * 63, lambda n: 8000 + n % 9, id="long keys and values"),
        pytest.param(lambda n: b"key", lambda n: 100 + n * 31 % 2000, id="more sizes than are remembered"),
    ],
)
def test_records_of_equal_layout_are_decoded_together(
    key: Callable[[int], bytes | None], size: Callable[[int], int], per_ms: float
) -> None:
    count = 2500
    batch = built(count, key, size, per_ms)
    assert read(batch) == (one_by_one(batch, count), True)
    found = lengths(batch, count)
    assert found[0] in (64, 32) and 0 not in found and len(found) <= 4, found
    assert all(len(one) <= uneven.SIZES_MAX for one in uneven._layouts.values())


@pytest.mark.parametrize(
    ("key", "size"),
    [
        (lambda n: b"k" * (n % 3), lambda n: 10),
        (lambda n: b"k" if n % 2 else None, lambda n: 10),
        (lambda n: b"k" * 64, lambda n: 100 + n % 7),
        (lambda n: b"key", lambda n: 60 + n % 10),
        (lambda n: b"key", lambda n: 8150 + n % 100),
        (lambda n: b"key", lambda n: 100 + n % 7 if n < 70 else 9000),
    ],
)
def test_unequal_records_are_decoded_one_by_one(key: Callable[[int], bytes | None], size: Callable[[int], int]) -> None:
    batch = built(300, key, size)
    assert lengths(batch, 300)[-1] == 0
    assert read(batch) == (one_by_one(batch, 300), True)


def of_key(key: bytes, size: int) -> bytes:
    """A batch of one key and three sizes."""
    return built(40, lambda _: key, lambda n: size + n % 3)


@pytest.mark.parametrize("size_bytes", [1, 2])
@pytest.mark.parametrize("length_bytes", [1, 2])
def test_layout_is_valid_only_for_sizes_of_its_encoded_length(size_bytes: int, length_bytes: int) -> None:
    """All encodings, also those that only the loop decodes."""
    layout = uneven._Layout(size_bytes, 1, 1, 3, length_bytes)
    sound = 0
    for size in range(256**size_bytes):
        end, wanted = layout[size]
        if wanted >= 0:
            number, position = decode_varint(size.to_bytes(size_bytes, "little") + bytes(4), 0)
            assert (position, position + number - 1) == (size_bytes, end)
            written = wanted.to_bytes(length_bytes, "little")
            assert decode_varint(written + bytes(4), 0) == (end - layout.value_at, length_bytes)
            sound += 1
    assert sound > 5 or (size_bytes, length_bytes) == (1, 2), "a record of so few bytes has no such value"


def test_cache_of_layouts_is_bounded() -> None:
    for number in range(45):
        for size in (3, 100):
            batch = of_key(b"k" * number, size)
            assert lengths(batch, 40)[0] == 40
    assert len(uneven._layouts) <= uneven.LAYOUTS_MAX


@for_each(range(200))
def test_damaged_batch_gives_same_result_as_loop(seed: int) -> None:
    """Changes, doubles or drops a byte of a valid batch at any position."""
    rng = random.Random(seed)
    count = rng.choice([40, 64, 100, 200])
    key, size = rng.choice([b"k" * 3, b"", None]), rng.choice([0, 3, 70])
    batch = bytearray(built(count, lambda n: key, lambda n: size + n % 5, rng.choice([0.7, 50])))
    damage(batch, rng)
    compare(batch, count)


@pytest.mark.parametrize(("first", "count", "size"), [(40, 80, 3), (40, 80, 70), (600, 640, 3), (600, 640, 70)])
def test_every_flipped_bit_gives_same_result_as_loop(first: int, count: int, size: int) -> None:
    """Flips each bit of one record and the next, of a value at each seventh byte. Later ones have two-byte deltas."""
    sound = built(count, lambda n: b"key", lambda n: size + n % 5, 0.7 if first > 64 else 50)
    reader = RecordReader(sound)
    while reader.left > count - first:
        where = (reader._data, reader._position, reader.left, 0, BASE_MS)
        stretch, taken = read_stretch(*where), read_uneven(*where)
        reader.read(AT_ONCE)
    assert stretch is None and taken is not None, "this record is read by the loop anyway"
    data, position = sound[HEADER_BYTES:], 0
    for _ in range(first):
        position += size_of(data, position)
    second = position + size_of(data, position)
    end = second + size_of(data, second)
    heads = {*range(position, position + 16), *range(second - 3, second + 16), *range(end - 3, end)}
    for at in sorted({*heads, *range(position, end, 7)} & {*range(position, end)}):
        for bit in range(8):
            batch = bytearray(sound)
            batch[HEADER_BYTES + at] ^= 1 << bit
            compare(batch, count)
