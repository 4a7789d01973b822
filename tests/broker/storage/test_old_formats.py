from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from anabranch.broker.storage.files import Files
from anabranch.broker.storage.log import LogSettings, PartitionLog
from anabranch.broker.storage.log_append import append_as_leader
from anabranch.broker.storage.old_formats import convert
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import check_crc, read_header, set_log_append_time
from anabranch.protocol.records.compression import Compression, compress
from anabranch.protocol.records.message_set import Message, build_message, build_wrapper
from anabranch.protocol.records.record import iter_records
from tests.broker.storage.batches import batch
from tests.broker.storage.logs import opened

NOW_MS = 1_600_000_000_000
CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


def message(number: int = 0, *, magic: int = 1, key: bytes | None = b"key", attributes: int = 0) -> Message:
    return Message(number, magic, attributes, NOW_MS + number if magic else -1, key, b"value-%d" % number)


def message_set(count: int = 3, *, magic: int = 1, codec: int = 0, **details: Any) -> bytes:
    messages = [message(number, magic=magic, **details) for number in range(count)]
    return build_wrapper(messages, codec) if codec else b"".join(map(build_message, messages))


def verdict(records: bytes, **settings: Any) -> ErrorCode:
    try:
        convert(records, LogSettings(**settings))
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_becomes_one_batch_with_the_producers_codec(magic: int, codec: Compression) -> None:
    records = convert(message_set(magic=magic, codec=codec), LogSettings())
    header = read_header(records)
    assert (header.codec, header.record_count, header.size_bytes) == (codec, 3, len(records))
    assert [(one.offset, one.timestamp_ms, one.value) for one in iter_records(records)] == [
        (number, NOW_MS + number if magic else -1, b"value-%d" % number) for number in range(3)
    ]


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_message_set_becomes_one_batch_with_the_topics_codec(source: Compression, target: str) -> None:
    settings = LogSettings(compression_type=target)
    records = convert(message_set(codec=source), settings)
    assert read_header(records).codec == settings.codec
    assert len(list(iter_records(records))) == 3


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


GOOD = message_set()
PLAIN = message_set(1)
WRAPPER = message_set(codec=Compression.GZIP)


def wrapping(content: bytes, codec: int = Compression.GZIP) -> bytes:
    value = compress(codec, content) if codec <= max(Compression) else content
    return build_message(Message(2, 1, codec, NOW_MS, None, value))


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (GOOD, ErrorCode.NONE),
        (WRAPPER, ErrorCode.NONE),
        (damaged(GOOD), ErrorCode.CORRUPT_MESSAGE),
        (damaged(WRAPPER), ErrorCode.CORRUPT_MESSAGE),
        (wrapping(damaged(GOOD)), ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:11] + b"\x0d" + GOOD[12:], ErrorCode.CORRUPT_MESSAGE),
        (build_message(message())[:-20] + bytes(20), ErrorCode.CORRUPT_MESSAGE),
        (PLAIN + message_set(1, magic=0), ErrorCode.INVALID_RECORD),
        (PLAIN + batch(1), ErrorCode.INVALID_RECORD),
        (WRAPPER + WRAPPER, ErrorCode.INVALID_RECORD),
        (PLAIN + WRAPPER, ErrorCode.INVALID_RECORD),
        (wrapping(message_set(magic=0)), ErrorCode.INVALID_RECORD),
        (wrapping(WRAPPER), ErrorCode.INVALID_RECORD),
        (wrapping(b""), ErrorCode.INVALID_RECORD),
        (build_message(Message(0, 1, 1, NOW_MS, None, None)), ErrorCode.INVALID_RECORD),
        (build_message(Message(0, 1, 1, NOW_MS, None, b"junk")), ErrorCode.UNKNOWN_SERVER_ERROR),
        (wrapping(GOOD, Compression.ZSTD), ErrorCode.INVALID_RECORD),
        (wrapping(GOOD, 5), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_invalid_message_sets_are_refused(records: bytes, code: ErrorCode) -> None:
    assert verdict(records) is code


def test_max_message_bytes_applies_to_single_messages() -> None:
    largest = len(build_message(message()))
    assert verdict(PLAIN, max_message_bytes=largest) is ErrorCode.NONE
    assert len(GOOD) > 2 * largest
    assert verdict(GOOD, max_message_bytes=2 * largest) is ErrorCode.NONE
    assert verdict(GOOD, max_message_bytes=largest - 1) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_many_small_messages_are_refused_with_bounded_memory(codec: Compression) -> None:
    """Together they have the size of a batch; few of them are in memory at a time."""
    records = build_message(Message(0, 0, 0, -1, None, None)) * 100_000
    if codec:
        records = build_message(Message(99_999, 0, codec, -1, None, compress(codec, records)))
    settings = {"max_message_bytes": 100_000, "compression_type": "uncompressed"}
    tracemalloc.start()
    try:
        assert verdict(records, **settings) is ErrorCode.MESSAGE_TOO_LARGE
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 100_000 * 26 / 2
    assert verdict(message_set(3), max_message_bytes=60) is ErrorCode.NONE


def test_message_with_log_append_time_attribute_is_refused_in_such_a_topic() -> None:
    timed_by_broker = message_set(attributes=8)
    assert verdict(timed_by_broker, message_timestamp_type="LogAppendTime") is ErrorCode.INVALID_TIMESTAMP
    assert verdict(build_message(message(attributes=8)._replace(timestamp_ms=-1))) is ErrorCode.INVALID_TIMESTAMP
    assert verdict(timed_by_broker) is ErrorCode.NONE
    assert not read_header(convert(timed_by_broker, LogSettings())).is_log_append_time
    assert verdict(message_set(attributes=8, magic=0)) is ErrorCode.NONE  # where the bit has no meaning


def test_truncated_last_message_is_dropped() -> None:
    assert read_header(convert(GOOD + GOOD[:-1], LogSettings())).record_count == 5
    assert convert(GOOD[:20], LogSettings()) == b""


@pytest.fixture
def log(files: Files) -> PartitionLog:
    return opened(files, LogSettings())


@pytest.mark.parametrize("codec", CODECS)
def test_message_sets_are_appended_as_batches(log: PartitionLog, codec: Compression) -> None:
    append_as_leader(log, batch(2), leader_epoch=4, now_ms=NOW_MS)
    info = append_as_leader(log, message_set(codec=codec), leader_epoch=4, now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset, info.log_append_time_ms, info.record_count) == (2, 4, -1, 3)
    stored = read_header(log.read(2, 1 << 20))
    assert (stored.base_offset, stored.partition_leader_epoch, stored.codec) == (2, 4, codec)


def test_rules_of_batches_apply_to_message_sets(log: PartitionLog) -> None:
    def appended(records: bytes, **settings: Any) -> ErrorCode:
        log.settings = LogSettings(**settings)
        try:
            append_as_leader(log, records, leader_epoch=0, now_ms=NOW_MS)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    assert appended(GOOD, cleanup_policy="compact") is ErrorCode.NONE
    assert appended(message_set(key=None), cleanup_policy="compact") is ErrorCode.INVALID_RECORD
    assert appended(GOOD, message_timestamp_after_max_ms=1) is ErrorCode.INVALID_TIMESTAMP
    assert appended(message_set(magic=0), message_timestamp_after_max_ms=0) is ErrorCode.NONE
    assert appended(GOOD, max_message_bytes=100) is ErrorCode.MESSAGE_TOO_LARGE  # as a batch
    assert appended(GOOD, segment_bytes=100) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_topic_compression_level_applies(log: PartitionLog) -> None:
    sizes = []
    for level in (1, 9):
        log.settings = LogSettings(compression_type="gzip", compression_gzip_level=level)
        value = b"".join(b"%d " % (n * n % 997) for n in range(9000))
        for records in (batch(1, value=value), build_message(message()._replace(value=value))):
            sizes.append(append_as_leader(log, records, leader_epoch=0, now_ms=NOW_MS).size_bytes)
    assert min(sizes[:2]) > max(sizes[2:])


def test_log_append_time_replaces_timestamps_of_message_sets(log: PartitionLog) -> None:
    log.settings = LogSettings(message_timestamp_type="LogAppendTime")
    info = append_as_leader(log, message_set(magic=0), leader_epoch=0, now_ms=NOW_MS + 99)
    assert info.log_append_time_ms == NOW_MS + 99
    assert {one.timestamp_ms for one in iter_records(log.read(0, 1 << 20))} == {NOW_MS + 99}


def test_partial_message_set_appends_nothing(log: PartitionLog) -> None:
    info = append_as_leader(log, GOOD[:20], leader_epoch=0, now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (-1, -1, 0)


def test_log_append_time_attribute_of_a_producer_is_cleared(log: PartitionLog) -> None:
    claiming = bytearray(batch(2, timestamp_ms=NOW_MS))
    set_log_append_time(claiming, 0, read_header(claiming), NOW_MS + 5)
    info = append_as_leader(log, bytes(claiming), leader_epoch=0, now_ms=NOW_MS)
    stored = log.read(0, 1 << 20)
    assert (info.log_append_time_ms, read_header(stored).is_log_append_time) == (-1, False)
    assert check_crc(stored, 0, read_header(stored))
    assert [one.timestamp_ms for one in iter_records(stored)] == [NOW_MS, NOW_MS + 1]
