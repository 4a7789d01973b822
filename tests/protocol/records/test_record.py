"""Records of valid and damaged batches."""

from __future__ import annotations

import contextlib
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import (
    HEADER_BYTES,
)
from anabranch.protocol.records.record import NAME_BYTES_MAX, NAMES_MAX, Record, RecordReader, _names, iter_records
from tests.protocol.records.test_batch import THREE, build


def test_cache_of_header_keys_is_bounded() -> None:
    names = [f"name-{number}" for number in range(2 * NAMES_MAX)] + ["x" * 65, "ü", ""]
    batch = build([Record(0, 0, None, None, tuple((name, None) for name in names))])
    for _ in range(2):
        [found] = iter_records(batch)
        assert [name for name, _ in found.headers] == names
    assert len(_names) <= NAMES_MAX
    assert all(len(raw) <= NAME_BYTES_MAX for raw in _names)


def test_records_read_without_headers_are_equal_and_skip_header_cost() -> None:
    records = [Record(number, number, b"k", b"v", (("a", b"b"),) * number) for number in range(100)]
    batch = build(records)
    assert list(iter_records(batch, headers_max=0)) == [one._replace(headers=()) for one in records]
    many = build([Record(0, 0, b"k", b"v", (("", None),) * 500_000), Record(1, 1, None, b"w", ())])
    start_s = time.thread_time()
    _, second = iter_records(many)
    whole_s, start_s = time.thread_time() - start_s, time.thread_time()
    assert [one.value for one in iter_records(many, headers_max=0)] == [b"v", second.value]
    assert (time.thread_time() - start_s) * 10 < whole_s


def test_only_the_first_headers_are_read_up_to_a_limit() -> None:
    records = [Record(number, number, b"k", b"v", (("a", b"%d" % number),) * number) for number in range(9)]
    batch = build(records)
    for limit in (1, 4, 8, 100):
        expected = [one._replace(headers=one.headers[:limit]) for one in records]
        assert list(iter_records(batch, headers_max=limit)) == expected
    damaged = bytearray(build([Record(0, 0, b"k", b"v", (("a", b"1"), ("b", b"2")))]))
    damaged[-4] = 0x7F  # the length of the second header's name
    assert [one.headers for one in iter_records(bytes(damaged), headers_max=1)] == [(("a", b"1"),)]
    with pytest.raises(DecodeError):
        list(iter_records(bytes(damaged), headers_max=2))


def test_record_that_ends_before_its_value_is_refused_without_headers() -> None:
    """A header may declare two billion records, which would be read again and again."""
    batch = bytearray(build([Record(number, number, b"k", b"v", ()) for number in range(3)]))
    for size in range(256):
        batch[HEADER_BYTES] = size
        with contextlib.suppress(DecodeError):
            assert len(list(iter_records(bytes(batch), headers_max=0))) == 3
    batch[HEADER_BYTES] = 1  # a size of -1: the record begins where it ends
    with pytest.raises(DecodeError):
        RecordReader(bytes(batch), headers_max=0).read(1)


def test_record_count_must_match_records() -> None:
    batch = build(THREE)
    for count, complaint in ((2, "bytes after the last record"), (4, "cut off")):
        lying = bytearray(batch)
        struct.pack_into(">i", lying, 57, count)
        with pytest.raises(DecodeError, match=complaint):
            list(iter_records(lying))


def test_truncated_batch_is_refused() -> None:
    batch = build(THREE)
    with pytest.raises(DecodeError, match="cut off"):
        iter_records(batch[:-1])


@given(st.data())
def test_corrupt_records_raise_only_decode_errors(data: st.DataObject) -> None:
    batch = bytearray(build(THREE * 3))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        for record in iter_records(batch):
            assert len(record.value or b"") <= len(batch)
