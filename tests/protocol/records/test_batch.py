from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    FLAGS_POSITION,
    HEADER,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    LOG_APPEND_TIME,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    RECORD_COUNT_POSITION,
    BatchHeader,
    check_crc,
    iter_batches,
    read_header,
    recompress,
    set_log_append_time,
)
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.compression import Compression
from anabranch.protocol.records.record import Record, iter_records
from tests.protocol.stored_batch import stored_at

NAMES = [codec.name.lower() for codec in Compression]

THREE = [
    Record(0, 1700000000000, b"key", b"value", (("h", b"1"), ("none", None))),
    Record(1, 1700000000007, None, b"v2", ()),
    Record(2, 1699999999999, b"k3", None, ()),
]

# the three records above, written by aiokafka's C builder (and, for "none", byte for byte also by kafka-python)
GOLDEN = {
    "none": "00000000000000000000005cffffffff0282b26f9a0000000000020000018bcfe568000000018bcfe5680700000000000012"
    "670003000000090000000330000000066b65790a76616c75650402680231086e6f6e650110000e0201047632001000010404"
    "6b330100",
    "snappy": "000000000000000000000072ffffffff0297e0e92c0002000000020000018bcfe568000000018bcfe5680700000000000012"
    "670003000000090000000382534e415050590000000001000000010000002d2ba830000000066b65790a76616c7565040268"
    "0231086e6f6e650110000e02010476320010000104046b330100",
    "lz4": "00000000000000000000006fffffffff02caac16aa0003000000020000018bcfe568000000018bcfe5680700000000000012"
    "670003000000090000000304224d187040ad2b00008030000000066b65790a76616c75650402680231086e6f6e650110000e"
    "02010476320010000104046b330100f59a722d00000000",
    "zstd": "000000000000000000000065ffffffff0242a1526a0004000000020000018bcfe568000000018bcfe5680700000000000012"
    "670003000000090000000328b52ffd202b59010030000000066b65790a76616c75650402680231086e6f6e650110000e0201"
    "0476320010000104046b330100",
}


def build(records: list[Record], compression: str = "none", **header: Any) -> bytes:
    builder = BatchBuilder(compression, limit_bytes=1 << 30)
    for record in records:
        assert builder.append(record.key, record.value, record.headers, record.timestamp_ms)
    return builder.build(**header)


payloads = st.one_of(st.none(), st.binary(max_size=300))
records_of_a_batch = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(0, 1 << 43),
        key=payloads,
        value=payloads,
        headers=st.lists(st.tuples(st.text(max_size=90), payloads), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=150,
).map(lambda records: [record._replace(offset=offset) for offset, record in enumerate(records)])


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("base_offset", 0),
        ("batch_length", LENGTH_POSITION),
        ("partition_leader_epoch", LEADER_EPOCH_POSITION),
        ("magic", MAGIC_POSITION),
        ("crc", CRC_POSITION),
        ("attributes", ATTRIBUTES_POSITION),
        ("max_timestamp", MAX_TIMESTAMP_POSITION),
        ("record_count", RECORD_COUNT_POSITION),
    ],
)
def test_field_positions_equal_header_layout(name: str, position: int) -> None:
    place = BatchHeader._fields.index(name)
    assert position == struct.calcsize(HEADER.format[: 1 + place])
    assert FLAGS_POSITION == ATTRIBUTES_POSITION + 1, "of two bytes the lower one is the second"


@pytest.mark.parametrize("compression", list(GOLDEN))
def test_batch_of_another_implementation_is_read(compression: str) -> None:
    batch = bytes.fromhex(GOLDEN[compression])
    [(position, header)] = iter_batches(batch)
    assert (position, header.size_bytes) == (0, len(batch))
    assert check_crc(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (4711, 3, 9, 11)
    assert (header.base_timestamp, header.max_timestamp) == (1700000000000, 1700000000007)
    assert Compression(header.codec).name.lower() == compression
    assert list(iter_records(batch)) == THREE


def test_written_bytes_equal_those_of_another_implementation() -> None:
    assert build(THREE, producer_id=4711, producer_epoch=3, base_sequence=9).hex() == GOLDEN["none"]


@given(records_of_a_batch, st.sampled_from(NAMES))
def test_records_survive_the_round_trip(records: list[Record], compression: str) -> None:
    batch = build(records, compression, base_offset=1000)
    [(_, header)] = iter_batches(batch)
    assert check_crc(batch, 0, header)
    assert header.record_count == len(records)
    assert header.next_offset == 1000 + len(records)
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    assert list(iter_records(batch)) == [record._replace(offset=1000 + record.offset) for record in records]


@given(records_of_a_batch)
def test_size_is_known_before_batch_is_built(records: list[Record]) -> None:
    builder = BatchBuilder(limit_bytes=1 << 30)
    for record in records:
        builder.append(record.key, record.value, record.headers, record.timestamp_ms)
    assert builder.size_bytes == len(builder.build())
    assert builder.record_count == len(records)


@pytest.mark.parametrize("compression", NAMES)
def test_written_batch_is_read_by_another_implementation(compression: str) -> None:
    batch = build(THREE, compression, producer_id=7, producer_epoch=1, base_sequence=0)
    reader = AioBatch(batch)
    assert reader.validate_crc()
    seen = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader]
    assert seen == [tuple(record) for record in THREE]


@pytest.mark.parametrize("codec", Compression)
def test_large_batch_of_another_implementation_is_read(codec: Compression) -> None:
    builder = AioBuilder(
        magic=2,
        compression_type=codec.value,
        is_transactional=1,
        producer_id=1,
        producer_epoch=2,
        base_sequence=3,
        batch_size=1 << 22,
    )
    values = [b"%d-" % i * (i % 50) for i in range(5000)]
    for i, value in enumerate(values):
        builder.append(i, 1000 + i, b"%d" % i, value, [])
    batch = bytes(builder.build())
    assert read_header(batch).is_transactional
    assert [record.value for record in iter_records(batch)] == values


def test_sequence_numbers_wrap() -> None:
    batch = build(THREE, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert read_header(batch).last_sequence == 0


def test_checksum_does_not_cover_offset_and_epoch() -> None:
    first, second = build(THREE), build(THREE[:1])
    buffer = stored_at(first, 500, 9) + stored_at(second, 503, 9)
    batches = list(iter_batches(buffer))
    assert [(p, h.base_offset, h.partition_leader_epoch) for p, h in batches] == [(0, 500, 9), (len(first), 503, 9)]
    assert all(check_crc(buffer, position, header) for position, header in batches)
    assert [record.offset for record in iter_records(buffer, len(first))] == [503]


def test_log_append_time_applies_to_every_record() -> None:
    batch = bytearray(build(THREE))
    set_log_append_time(batch, 0, read_header(batch), 123456)
    header = read_header(batch)
    assert header.attributes & LOG_APPEND_TIME
    assert check_crc(batch, 0, header)
    assert {record.timestamp_ms for record in iter_records(batch)} == {123456}
    assert {record.timestamp for record in AioBatch(bytes(batch))} == {123456}


@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("target", Compression)
def test_recompressed_batch_keeps_records_and_header(source: str, target: Compression) -> None:
    batch = build(THREE, source, producer_id=7, producer_epoch=1, base_sequence=4, transactional=True)
    changed = recompress(batch, read_header(batch), target)
    header = read_header(changed)
    assert check_crc(changed, 0, header)
    assert header.size_bytes == len(changed)
    assert (header.codec, header.is_transactional, header.base_sequence) == (target, True, 4)
    assert list(iter_records(changed)) == THREE


def test_incomplete_tail_is_skipped() -> None:
    whole = build(THREE)
    for size in range(len(whole)):
        assert [p for p, _ in iter_batches(whole + whole[:size])] == [0]


@pytest.mark.parametrize("length", [48, 0, -1, -(2**31)])
def test_impossible_lengths_are_refused(length: int) -> None:
    batch = bytearray(build(THREE))
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(DecodeError, match=f"record batch of {length} bytes"):
        list(iter_batches(batch))


def test_other_magic_is_refused() -> None:
    batch = bytearray(build(THREE))
    batch[16] = 1
    with pytest.raises(DecodeError, match="magic 1"):
        list(iter_batches(batch))


def test_checksum_covers_everything_behind_it() -> None:
    batch = build(THREE)
    header = read_header(batch)
    for position in range(21, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 1
        assert not check_crc(damaged, 0, header)
