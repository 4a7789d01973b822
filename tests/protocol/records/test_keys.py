"""Keys are read without the other fields, and equal those of full records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import HEADER_BYTES
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.keys import iter_keys
from anabranch.protocol.records.record import iter_records

KEYS = st.none() | st.binary(max_size=200)
ROWS = st.lists(st.tuples(KEYS, KEYS, st.integers(0, 1 << 40)), min_size=1, max_size=20)


def built(rows: list[tuple[bytes | None, bytes | None, int]]) -> bytes:
    builder = BatchBuilder()
    for key, value, timestamp_ms in rows:
        builder.append(key, value, (("h", b"x"),), timestamp_ms)
    return bytes(builder.build())


@given(ROWS)
def test_keys_equal_those_of_records(rows: list[tuple[bytes | None, bytes | None, int]]) -> None:
    batch = built(rows)
    found = list(iter_keys(batch[HEADER_BYTES:], len(rows)))
    assert found == [key for key, _, _ in rows] == [record.key for record in iter_records(batch)]


def test_keys_of_records_of_all_lengths_are_read() -> None:
    """From the 65th record on, the offset's delta has two bytes."""
    keys = [b"%d" % number for number in range(130)]
    rows = [(key, bytes(number), 1) for number, key in enumerate(keys)]  # some records of 64 and 128 bytes
    assert list(iter_keys(built(rows)[HEADER_BYTES:], len(keys))) == keys


def test_truncated_records_are_refused() -> None:
    content = built([(b"key", b"value" * 30, 1), (b"other", b"v", 2)])[HEADER_BYTES:]
    for end in range(len(content)):
        with pytest.raises(DecodeError):
            list(iter_keys(content[:end], 2))


def test_key_longer_than_its_record_is_refused() -> None:
    content = bytearray(built([(b"key", b"v", 1)])[HEADER_BYTES:])
    content[4] = 126  # the key's length, as a zigzag: 63
    with pytest.raises(DecodeError, match="a key of 63 bytes"):
        list(iter_keys(bytes(content) + bytes(100), 1))
