from __future__ import annotations

import struct
from typing import Any

import pytest

from anabranch.broker.storage.inspection import RecordsRefused
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.validation import Origin, check_produced, check_replicated
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import read_header, set_log_append_time
from anabranch.protocol.records.control import build_end_transaction
from anabranch.protocol.records.crc32c import crc32c
from tests.broker.storage.batches import NOW_MS, batch

GOOD = batch(3)


def changed(records: bytes, position: int, layout: str, value: int, *, sealed: bool = True) -> bytes:
    """The batch with one header field overwritten, and (if sealed) a checksum that fits again."""
    buffer = bytearray(records)
    struct.pack_into(f">{layout}", buffer, position, value)
    if sealed:
        struct.pack_into(">I", buffer, 17, crc32c(buffer[21:]))
    return bytes(buffer)


def verdict(records: bytes, origin: Origin = "client", **settings: Any) -> ErrorCode:
    try:
        check_produced(records, LogSettings(**settings), NOW_MS, origin)
    except KafkaError as error:
        assert error.message
        return error.code
    return ErrorCode.NONE


def test_valid_batch_is_accepted() -> None:
    for buffer in (GOOD, bytearray(GOOD), memoryview(GOOD)):
        assert check_produced(buffer, LogSettings(), NOW_MS, "client").header.record_count == 3
    assert verdict(batch(2, producer=(1, 0, 0))) is ErrorCode.NONE


def time_stamped() -> bytes:
    buffer = bytearray(GOOD)
    set_log_append_time(buffer, 0, read_header(GOOD), NOW_MS)
    return bytes(buffer)


MARKER = build_end_transaction(commit=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (GOOD + GOOD, ErrorCode.INVALID_RECORD),
        (GOOD + b"x", ErrorCode.NONE),
        (GOOD + GOOD[:-1], ErrorCode.NONE),
        (GOOD + bytes(12), ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:-1], ErrorCode.INVALID_RECORD),
        (GOOD[:60], ErrorCode.INVALID_RECORD),
        (GOOD[:10], ErrorCode.INVALID_RECORD),
        (changed(GOOD, 8, "i", 13)[:20], ErrorCode.CORRUPT_MESSAGE),
        (changed(GOOD, 8, "i", 2**31 - 1), ErrorCode.INVALID_RECORD),
        (changed(GOOD, 8, "i", 48), ErrorCode.CORRUPT_MESSAGE),
        (changed(GOOD, 8, "i", -5), ErrorCode.CORRUPT_MESSAGE),
        (changed(GOOD, 16, "b", 3), ErrorCode.CORRUPT_MESSAGE),
        (changed(GOOD, 16, "b", -1), ErrorCode.CORRUPT_MESSAGE),
        (changed(GOOD, len(GOOD) - 1, "B", 7, sealed=False), ErrorCode.CORRUPT_MESSAGE),
        (changed(GOOD, 17, "I", 7, sealed=False), ErrorCode.CORRUPT_MESSAGE),
        (changed(GOOD, 0, "q", 5), ErrorCode.INVALID_RECORD),
        (changed(GOOD, 57, "i", 4), ErrorCode.INVALID_RECORD),
        (changed(GOOD, 57, "i", 0), ErrorCode.INVALID_RECORD),
        (changed(GOOD, 23, "i", 3), ErrorCode.INVALID_RECORD),
        (changed(changed(GOOD, 57, "i", 0), 23, "i", -1), ErrorCode.INVALID_RECORD),
        (changed(GOOD, 21, "h", 5), ErrorCode.UNKNOWN_SERVER_ERROR),
        (batch(producer=(1, 0, -1)), ErrorCode.INVALID_RECORD),
        (batch(producer=(1, -1, 0)), ErrorCode.NONE),
        (batch(control=True), ErrorCode.INVALID_RECORD),
        (MARKER, ErrorCode.INVALID_RECORD),
    ],
)
def test_invalid_batch_is_refused(records: bytes, code: ErrorCode) -> None:
    assert verdict(records) is code


def test_coordinator_may_append_markers_and_batches_without_sequence() -> None:
    assert verdict(MARKER, "coordinator") is ErrorCode.NONE
    assert verdict(batch(producer=(1, 0, -1)), "coordinator") is ErrorCode.NONE
    assert verdict(GOOD[:-1], "coordinator") is ErrorCode.INVALID_RECORD


def test_batch_size_is_bounded() -> None:
    assert verdict(GOOD, max_message_bytes=len(GOOD)) is ErrorCode.NONE
    assert verdict(GOOD, max_message_bytes=len(GOOD) - 1) is ErrorCode.MESSAGE_TOO_LARGE
    assert verdict(GOOD, segment_bytes=len(GOOD)) is ErrorCode.NONE
    assert verdict(GOOD, segment_bytes=len(GOOD) - 1) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamps_are_checked_against_the_bounds() -> None:
    late, old = batch(2, timestamp_ms=NOW_MS + 60_000), batch(2, timestamp_ms=NOW_MS - 60_000)
    assert verdict(late) is verdict(old) is ErrorCode.NONE
    assert verdict(late, message_timestamp_after_max_ms=60_001) is ErrorCode.NONE
    assert verdict(late, message_timestamp_after_max_ms=60_000) is ErrorCode.INVALID_TIMESTAMP
    assert verdict(old, message_timestamp_before_max_ms=60_000) is ErrorCode.NONE
    with pytest.raises(RecordsRefused) as refusal:
        check_produced(old, LogSettings(message_timestamp_before_max_ms=59_999), NOW_MS, "client")
    assert refusal.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.value.record_errors] == [0]
    with pytest.raises(RecordsRefused) as refusal:
        check_produced(late, LogSettings(message_timestamp_after_max_ms=60_000), NOW_MS, "client")
    assert [index for index, _ in refusal.value.record_errors] == [1]
    own_time = {"message_timestamp_type": "LogAppendTime", "message_timestamp_after_max_ms": 0}
    assert verdict(late, **own_time) is ErrorCode.NONE


def test_batch_with_log_append_time_attribute_is_refused_in_such_a_topic() -> None:
    assert verdict(time_stamped()) is ErrorCode.NONE
    assert verdict(time_stamped(), message_timestamp_type="LogAppendTime") is ErrorCode.INVALID_TIMESTAMP
    assert verdict(changed(time_stamped(), 35, "q", -1)) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_compacted_topics_need_keys(compression: str) -> None:
    assert verdict(batch(2, compression=compression), cleanup_policy="compact") is ErrorCode.NONE
    keyless = batch(2, key=None, compression=compression)
    assert verdict(keyless) is ErrorCode.NONE
    with pytest.raises(RecordsRefused) as refusal:
        check_produced(keyless, LogSettings(cleanup_policy="compact,delete"), NOW_MS, "client")
    assert refusal.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refusal.value.record_errors] == [0, 1]
    assert verdict(MARKER, "coordinator", cleanup_policy="compact") is ErrorCode.NONE


def test_unreadable_records_of_a_compacted_topic_are_refused() -> None:
    assert verdict(changed(GOOD, 61, "B", 250), cleanup_policy="compact") is ErrorCode.INVALID_RECORD


def test_follower_accepts_valid_contiguous_batches_only() -> None:
    records = batch(2, at=(10, 1))
    check_replicated(records, 0, read_header(records), 10)
    check_replicated(records, 0, read_header(records), 5)
    for damaged, next_offset, code in (
        (records, 11, ErrorCode.UNKNOWN_SERVER_ERROR),
        (changed(records, 23, "i", -1), 10, ErrorCode.UNKNOWN_SERVER_ERROR),
        (changed(records, len(records) - 1, "B", 9, sealed=False), 10, ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(KafkaError) as refusal:
            check_replicated(damaged, 0, read_header(damaged), next_offset)
        assert refusal.value.code is code
