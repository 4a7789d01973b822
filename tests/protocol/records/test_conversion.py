from __future__ import annotations

import pytest

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import read_header, set_log_append_time
from anabranch.protocol.records.batch_builder import BatchBuilder, with_records
from anabranch.protocol.records.compression import Compression
from anabranch.protocol.records.control import build_end_transaction
from anabranch.protocol.records.conversion import down_convert, up_convert
from anabranch.protocol.records.message_set import Message, check_crc, iter_headers, open_wrapper, read_message
from anabranch.protocol.records.record import Record, iter_records
from tests.protocol.stored_batch import stored_at

CODECS = ["none", "gzip", "snappy", "lz4"]
NOW_MS = 1_600_000_000_000


def a_batch(compression: str = "none", count: int = 4, base_offset: int = 10) -> bytes:
    """A tombstone, an empty value, headers and no key are among the records."""
    builder = BatchBuilder(compression)
    contents = [(b"a", b"1"), (b"a", None), (None, b""), (b"b", b"4")]
    for number, (key, value) in enumerate(contents[:count]):
        builder.append(key, value, [("h", b"x")], NOW_MS + number)
    return stored_at(builder.build(5, 0, 0, transactional=True), base_offset, 3)


def down(batch: bytes, magic: int, first_offset: int = 0) -> list[Message]:
    """What a consumer reads of a converted batch."""
    seen: list[Message] = []
    data = down_convert(batch, 0, read_header(batch), magic, first_offset)
    for position, header in iter_headers(data):
        assert check_crc(data, position, header)
        message = read_message(data, position, header)
        seen += open_wrapper(message) if message.codec else [message]
    return seen


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_batch_is_converted_to_message_set(magic: int, compression: str) -> None:
    assert [tuple(one) for one in down(a_batch(compression), magic)] == [
        (10, magic, 0, NOW_MS if magic else -1, b"a", b"1"),
        (11, magic, 0, NOW_MS + 1 if magic else -1, b"a", None),
        (12, magic, 0, NOW_MS + 2 if magic else -1, None, b""),
        (13, magic, 0, NOW_MS + 3 if magic else -1, b"b", b"4"),
    ]


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_compaction_gaps_are_kept(magic: int, compression: str) -> None:
    batch = a_batch(compression)
    kept = [record for record in iter_records(batch) if record.offset in (11, 13)]
    thinned = with_records(batch, read_header(batch), kept, NOW_MS + 99)
    assert [(one.offset, one.timestamp_ms) for one in down(thinned, magic)] == [
        (11, NOW_MS + 1 if magic else -1),
        (13, NOW_MS + 3 if magic else -1),
    ]


def test_uncompressed_records_before_fetch_offset_are_skipped() -> None:
    assert [one.offset for one in down(a_batch(), 1, 12)] == [12, 13]
    assert [one.offset for one in down(a_batch("gzip"), 1, 12)] == [10, 11, 12, 13]
    assert down(a_batch(), 1, 14) == []


def test_markers_and_empty_batches_are_dropped() -> None:
    marker = build_end_transaction(
        commit=True, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    assert down_convert(marker, 0, read_header(marker), 1, 0) == b""
    emptied = with_records(a_batch(), read_header(a_batch()), [], None)
    assert down_convert(emptied, 0, read_header(emptied), 1, 0) == b""


@pytest.mark.parametrize("compression", CODECS)
def test_log_append_time_is_converted_to_v1(compression: str) -> None:
    batch = bytearray(a_batch(compression))
    set_log_append_time(batch, 0, read_header(batch), NOW_MS + 500)
    messages = down(bytes(batch), 1)
    assert {one.timestamp_ms for one in messages} == {NOW_MS + 500}
    assert all(one.is_log_append_time for one in messages)
    assert {(one.timestamp_ms, one.attributes) for one in down(bytes(batch), 0)} == {(-1, 0)}


def test_corrupt_batch_is_a_decode_error() -> None:
    batch = bytearray(a_batch())
    batch[61] ^= 0x40
    with pytest.raises(DecodeError):
        down_convert(batch, 0, read_header(batch), 1, 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_is_converted_to_batch(magic: int) -> None:
    messages = [
        Message(70, magic, 0, NOW_MS if magic else -1, b"a", b"1"),
        Message(7, magic, 0, NOW_MS - 5 if magic else -1, None, None),
    ]
    batch = up_convert(messages)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset_delta, header.codec, header.producer_id) == (0, 1, 0, -1)
    assert header.max_timestamp == (NOW_MS if magic else -1)
    assert list(iter_records(batch)) == [
        Record(0, NOW_MS if magic else -1, b"a", b"1", ()),
        Record(1, NOW_MS - 5 if magic else -1, None, None, ()),
    ]


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_conversion_survives_the_round_trip(magic: int, compression: str) -> None:
    batch = a_batch(compression)
    again = list(iter_records(up_convert(down(batch, magic))))
    assert [(one.key, one.value) for one in again] == [(one.key, one.value) for one in iter_records(batch)]


def test_codecs_are_kept() -> None:
    for compression in CODECS[1:]:
        data = down_convert(a_batch(compression), 0, read_header(a_batch(compression)), 0, 0)
        ((position, header),) = iter_headers(data)
        assert read_message(data, position, header).codec == Compression.by_name(compression)
