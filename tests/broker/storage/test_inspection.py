"""Validation of records in a batch with a valid header and checksum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.storage.inspection import RECORD_ERRORS_MAX, RecordsRefused
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.memory_files import MemoryFiles
from anabranch.broker.storage.validation import check_produced
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.records.batch import HEADER_BYTES, iter_batches
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.compression import compress
from anabranch.protocol.records.record import iter_records
from tests.broker.storage.batches import NOW_MS, batch, batch_of
from tests.broker.storage.logs import append, code_of, opened
from tests.broker.storage.test_validation import changed

DEFAULTS = LogSettings()
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORD = batch()[HEADER_BYTES:]
TWO = batch(2)[HEADER_BYTES:]


def refusal(records: bytes, settings: LogSettings = DEFAULTS) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        check_produced(records, settings, NOW_MS, "client")
    return raised.value


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize(
    ("content", "count"),
    [
        pytest.param(RECORD, 1000, id="a thousand declared, one there"),
        pytest.param(RECORD, 2**31 - 1, id="as many as can be declared"),
        pytest.param(RECORD + RECORD, 1, id="one declared, two there"),
        pytest.param(b"\xff" * 70, 1, id="nonsense"),
        pytest.param(RECORD[:-1], 1, id="cut off"),
        pytest.param(RECORD + bytes(1), 1, id="a byte behind"),
        pytest.param(b"", 1, id="empty"),
    ],
)
def test_records_that_contradict_the_header_are_refused(compression: str, content: bytes, count: int) -> None:
    error = refusal(batch_of(content, count, compression))
    fails_in_kafka = compression == "none" and content[:1] == b"\xff"
    assert error.code is (ErrorCode.UNKNOWN_SERVER_ERROR if fails_in_kafka else ErrorCode.INVALID_RECORD)
    assert not isinstance(error, RecordsRefused)


@pytest.mark.parametrize("compression", CODECS[1:])
@pytest.mark.parametrize(
    "packed", [b"nonsense", b"\xff" * 70, compress(4, RECORD * 9)[:-5]], ids=["text", "0xff", "cut off"]
)
def test_records_that_do_not_decompress_are_refused(compression: str, packed: bytes) -> None:
    assert refusal(batch_of(b"", 1, compression, packed=packed)).code is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("compression", CODECS)
def test_refused_batch_changes_nothing(compression: str) -> None:
    log = opened(MemoryFiles(), LogSettings())
    append(log)
    assert code_of(append, log, batch_of(RECORD, 1000, compression)) is ErrorCode.INVALID_RECORD
    assert (log.log_end_offset, len(log.read(0, 1 << 20))) == (1, len(batch()))
    assert append(log).first_offset == 1


@pytest.mark.parametrize("compression", CODECS)
def test_record_errors_name_offsets_out_of_sequence(compression: str) -> None:
    error = refusal(batch_of(RECORD * 3, 3, compression))
    assert isinstance(error, RecordsRefused)
    assert error.code is ErrorCode.INVALID_RECORD
    assert error.record_errors == [
        (1, "the offset delta is 0 instead of 1"),
        (2, "the offset delta is 0 instead of 2"),
    ]


def test_number_of_record_errors_is_bounded() -> None:
    error = refusal(batch_of(RECORD * 5000, 5000, "zstd"))
    assert isinstance(error, RecordsRefused)
    assert [index for index, _ in error.record_errors] == list(range(1, RECORD_ERRORS_MAX + 1))


def test_timestamp_of_more_than_64_bits_is_refused() -> None:
    far = batch(2, timestamp_ms=2**63 - 2)
    assert check_produced(far, LogSettings(), NOW_MS, "client").max_timestamp == 2**63 - 1
    beyond = changed(far, 27, "q", 2**63 - 1)  # the base timestamp: the second record is one millisecond later
    error = refusal(beyond)
    assert isinstance(error, RecordsRefused)
    assert (error.code, [index for index, _ in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1])


@pytest.mark.parametrize(("first_ms", "refused"), [(-(2**63) + 1, []), (-(2**63), [1])])
def test_timestamp_below_64_bits_is_refused(first_ms: int, refused: list[int]) -> None:
    builder = BatchBuilder()
    for timestamp_ms in (NOW_MS, NOW_MS - 1):
        builder.append(b"key", b"value", timestamp_ms=timestamp_ms)
    falling = changed(builder.build(), 27, "q", first_ms)  # the second record is one millisecond earlier
    settings = LogSettings(message_timestamp_type="LogAppendTime")  # no limits but those of the format
    if not refused:
        check_produced(falling, settings, NOW_MS, "client")
        return
    error = refusal(falling, settings)
    assert isinstance(error, RecordsRefused)
    assert (error.code, [index for index, _ in error.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, refused)


def test_first_error_of_a_record_equals_kafkas() -> None:
    """The key is checked before the timestamp; but one invalid timestamp determines the batch's code."""
    settings = LogSettings(cleanup_policy="compact", message_timestamp_before_max_ms=1)
    keyless = batch(key=None, timestamp_ms=NOW_MS - 1000)
    assert refusal(keyless, settings).code is ErrorCode.INVALID_RECORD
    old = batch(timestamp_ms=NOW_MS - 1000)
    assert refusal(old, settings).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("compression", CODECS)
def test_the_latest_timestamp_is_that_of_a_record(compression: str) -> None:
    """Retention and time lookup use the header, so the leader computes it."""
    log = opened(MemoryFiles(), LogSettings())
    info = append(log, batch_of(TWO, 2, compression))
    assert info.max_timestamp == NOW_MS + 1
    [(position, header)] = iter_batches(stored := log.read(0, 1 << 20))
    assert header.max_timestamp == NOW_MS + 1
    assert [record.timestamp_ms for record in iter_records(stored, position)] == [NOW_MS, NOW_MS + 1]
    assert not header.is_log_append_time


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd"])
def test_batch_with_excessive_decompressed_size_is_refused(compression: str) -> None:
    """A few kilobytes that decompress to hundreds of megabytes (snappy compresses 1 to 21 at best)."""
    settings = LogSettings(max_message_bytes=1 << 20)
    limit = settings.decompressed_bytes_max
    assert limit == 16 << 20
    error = refusal(batch_of(bytes(limit + 1), 1, compression), settings)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(limit) in str(error)


REFUSALS = {ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_TIMESTAMP}
CONTENT = batch(5)[HEADER_BYTES:]


@given(
    st.sampled_from(CODECS),
    st.integers(0, len(CONTENT) - 1),
    st.integers(0, 255),
    st.sampled_from([5, 4, 6, 2**31 - 1]),
)
def test_accepted_batch_can_be_read_completely(compression: str, position: int, byte: int, count: int) -> None:
    content = CONTENT[:position] + bytes((byte,)) + CONTENT[position + 1 :]
    check_readable(batch_of(content, count, compression))


@given(st.sampled_from(CODECS[1:]), st.data())
def test_damage_inside_compressed_records_is_refused(compression: str, data: st.DataObject) -> None:
    packed = bytearray(batch_of(CONTENT, 5, compression)[HEADER_BYTES:])
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    check_readable(batch_of(b"", 5, compression, packed=bytes(packed)))


def check_readable(records: bytes) -> None:
    """Either the batch is refused with one of the right codes, or a consumer gets every record of it."""
    try:
        header, max_timestamp = check_produced(records, LogSettings(), NOW_MS, "client")
    except KafkaError as error:
        assert error.code in REFUSALS
        return
    found = list(iter_records(records))
    assert [record.offset for record in found] == list(range(header.record_count))
    assert max_timestamp == max(-1, *(record.timestamp_ms for record in found))
