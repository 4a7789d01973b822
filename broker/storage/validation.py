"""Whether a leader may append what somebody produced: one sound batch, within the topic's rules.

Everything is read from the batch's header. Records are looked into only if the topic asks for what the header cannot
tell: keys of a compacted topic, the oldest timestamp. A refusal is a KafkaError with the code Kafka gives
(`LogValidator`, `ProduceRequest.validateRecords`); the order of the checks decides which code wins, and is Kafka's.
Producer sequences are `producer_state`'s question.
"""

from __future__ import annotations

from typing import Final, Literal

from broker.storage.settings import INT64_MAX, LogSettings
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    check_crc,
    read_header,
)
from protocol.records.compression import Compression
from protocol.records.record import Record, iter_records

Origin = Literal["client", "coordinator"]

_CODEC_MAX: Final = max(Compression)


class RecordsRefused(KafkaError):
    """Some records of a batch break a rule; `record_errors` says which (Produce v8+)."""

    def __init__(self, code: ErrorCode, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, f"record {record_errors[0][0]}: {record_errors[0][1]}")
        self.record_errors = record_errors


def check_produced(records: Buffer, settings: LogSettings, now_ms: int, origin: Origin) -> BatchHeader:
    """The header of the one batch that `records` has to be. Raises KafkaError."""
    header = _the_only_batch(records)
    if header.base_offset != 0 and origin == "client":
        raise _invalid(f"the base offset is {header.base_offset} instead of 0")
    size_bytes = header.size_bytes
    if size_bytes > settings.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size_bytes} bytes, max.message.bytes is {settings.max_message_bytes}",
        )
    if not check_crc(records, 0, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch is wrong")
    if size_bytes > settings.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size_bytes} bytes, segment.bytes is {settings.segment_bytes}",
        )
    _check_header(header, origin)
    if origin == "client":
        _check_timestamps(records, header, settings, now_ms)
    if settings.compacts and not header.is_control:
        _check_keys(records)
    return header


def check_replicated(records: Buffer, position: int, header: BatchHeader, next_offset: int) -> None:
    """A batch that a follower got from its leader: sound, and behind what is there. Raises KafkaError."""
    if header.base_offset < next_offset or header.last_offset_delta < 0:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the leader sent offsets {header.base_offset} to {header.last_offset}, the log ends at {next_offset}",
        )
    if not check_crc(records, position, header):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the checksum of the batch at {header.base_offset} is wrong")


def _the_only_batch(records: Buffer) -> BatchHeader:
    if len(records) < LOG_OVERHEAD_BYTES:
        raise _invalid("no record batch")
    if len(records) < HEADER_BYTES:
        raise _incomplete(records)
    header = read_header(records)
    if header.magic != MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"magic {header.magic}")
    if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a record batch of {header.size_bytes} bytes")
    if header.size_bytes != len(records):
        if header.size_bytes > len(records):
            raise _incomplete(records)
        _check_rest(records, header.size_bytes)
    return header


def _incomplete(records: Buffer) -> KafkaError:
    """Kafka overlooks what is not all there, so that nothing is left, unless it cannot be a batch at all."""
    _check_rest(records, 0)
    return _invalid(f"{len(records)} bytes hold no whole record batch")


def _check_rest(records: Buffer, position: int) -> None:
    from protocol.records.message_set import iter_headers  # hardly anybody sends this

    try:
        if next(iter_headers(memoryview(records)[position:]), None) is not None:
            raise _invalid("more than one record batch")
    except DecodeError as reason:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(reason)) from None


def _check_header(header: BatchHeader, origin: Origin) -> None:
    if header.is_control and origin == "client":
        raise _invalid("clients do not write control batches")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise _invalid(f"{header.record_count} records with a last offset delta of {header.last_offset_delta}")
    if header.codec > _CODEC_MAX:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"compression codec {header.codec}")
    if header.has_producer_id and origin == "client" and header.base_sequence < 0:
        raise _invalid(
            f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}"
        )


def _check_timestamps(records: Buffer, header: BatchHeader, settings: LogSettings, now_ms: int) -> None:
    if header.is_log_append_time and (settings.stamps_time or header.max_timestamp == NO_TIMESTAMP):
        # Kafka has looked only here since 3.6: where the time itself is judged, the claim is just struck out.
        reason = "log append time is the broker's to set"
        _check_records(ErrorCode.INVALID_TIMESTAMP, [(index, reason) for index in range(header.record_count)])
    if settings.stamps_time:
        return
    earliest_ms = now_ms - settings.message_timestamp_before_max_ms
    latest_ms = now_ms + settings.message_timestamp_after_max_ms
    if header.max_timestamp <= latest_ms and settings.message_timestamp_before_max_ms == INT64_MAX:
        return
    _check_records(
        ErrorCode.INVALID_TIMESTAMP,
        [
            (index, f"timestamp {record.timestamp_ms} is not between {earliest_ms} and {latest_ms}")
            for index, record in enumerate(_records(records))
            if record.timestamp_ms != NO_TIMESTAMP and not earliest_ms <= record.timestamp_ms <= latest_ms
        ],
    )


def _check_keys(records: Buffer) -> None:
    _check_records(
        ErrorCode.INVALID_RECORD,
        [
            (index, "a compacted topic cannot take a record without a key")
            for index, record in enumerate(_records(records))
            if record.key is None
        ],
    )


def _check_records(code: ErrorCode, errors: list[tuple[int, str]]) -> None:
    if errors:
        raise RecordsRefused(code, errors)


def _records(records: Buffer) -> list[Record]:
    try:
        return list(iter_records(records))
    except DecodeError as reason:
        raise _invalid(f"the records cannot be read: {reason}") from None


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, reason)
