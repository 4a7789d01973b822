"""A batch is built record by record, and rebuilt for a resend."""

from __future__ import annotations

import pytest

from anabranch.protocol.records.batch import (
    HEADER_BYTES,
    check_crc,
    read_header,
)
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.record import Record, iter_records


def test_full_builder_refuses_record_and_is_unchanged() -> None:
    builder = BatchBuilder(limit_bytes=200)
    assert builder.append(b"k", b"v" * 50, (), 5)
    assert builder.append(b"k", b"v" * 50, (), 6)
    size_bytes = builder.size_bytes
    assert not builder.append(b"k", b"v" * 50, (), 9)
    assert (builder.size_bytes, builder.record_count, builder.max_timestamp_ms) == (size_bytes, 2, 6)
    assert [record.timestamp_ms for record in iter_records(builder.build())] == [5, 6]


def test_first_record_always_fits() -> None:
    builder = BatchBuilder(limit_bytes=100)
    assert builder.append(None, b"v" * 1000)
    assert not builder.append(None, b"v")
    [record] = iter_records(builder.build())
    assert record == Record(0, -1, None, b"v" * 1000, ())


def test_empty_batch_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="needs a record"):
        BatchBuilder().build()


def test_batch_is_built_again_for_another_producer() -> None:
    builder = BatchBuilder("zstd")
    builder.append(b"k", b"v")
    first, second = builder.build(1, 0, 0), builder.build(2, 0, 5)
    assert (read_header(first).producer_id, read_header(second).producer_id) == (1, 2)
    assert all(check_crc(batch, 0, read_header(batch)) for batch in (first, second))
    assert first[HEADER_BYTES:] == second[HEADER_BYTES:]


def test_batch_is_built_again_after_another_record() -> None:
    builder = BatchBuilder("zstd")
    builder.append(b"k", b"v")
    assert len(list(iter_records(builder.build()))) == 1
    builder.append(b"k", b"w")
    assert [record.value for record in iter_records(builder.build())] == [b"v", b"w"]
