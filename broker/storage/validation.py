"""Validates a produced batch before a leader appends it: one valid batch that satisfies the topic's rules.

`inspection` checks the records of clients; records of this cluster's coordinators are trusted. Errors are KafkaErrors
with Kafka's codes (`LogValidator`, `ProduceRequest.validateRecords`). The order of the checks is Kafka's too, since it
decides which code is returned. `producer_state` checks producer sequences.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from anabranch.broker.storage.inspection import InspectedRecords, content_of, inspect_few, inspect_records
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    Buffer,
    check_crc,
    read_header,
)
from anabranch.protocol.records.compression import Compression
from anabranch.protocol.records.message_set import iter_headers

Origin = Literal["client", "coordinator", "newer-coordinator"]

_CODEC_MAX: Final = max(Compression)


class Checked(NamedTuple):
    """The header and latest timestamp of a valid batch."""

    header: BatchHeader
    max_timestamp: int
    """The latest timestamp of the records; the header may have another one."""


def check_produced(
    records: Buffer, settings: LogSettings, now_ms: int, origin: Origin, found: InspectedRecords | None = None
) -> Checked:
    """Validate `records`, which must be exactly one batch. Raises KafkaError.

    `found` is the result of an earlier inspection of the records.
    """
    header = _the_only_batch(records)
    if header.base_offset != 0 and origin == "client":
        raise _invalid(f"the base offset is {header.base_offset} instead of 0")
    size_bytes = header.size_bytes
    if size_bytes > settings.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size_bytes} bytes, max.message.bytes is {settings.max_message_bytes}",
        )
    if found is None and not check_crc(records, 0, header):  # an inspection has checked it
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch is wrong")
    _check_header(header, origin)
    max_timestamp = header.max_timestamp
    if found is not None:
        if found.refusal is not None:
            raise found.refusal.error()
        max_timestamp = found.max_timestamp
    elif origin == "client":
        max_timestamp = _check_records(records, header, settings, now_ms)
    if size_bytes > settings.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size_bytes} bytes, segment.bytes is {settings.segment_bytes}",
        )
    return Checked(header, max_timestamp)


def check_replicated(records: Buffer, position: int, header: BatchHeader, next_offset: int) -> None:
    """Validate a batch from a leader: its checksum, and its offsets at or after `next_offset`. Raises KafkaError."""
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
    size_bytes = header.size_bytes
    if size_bytes != len(records):
        if size_bytes > len(records):
            raise _incomplete(records)
        _check_rest(records, size_bytes)
    return header


def _incomplete(records: Buffer) -> KafkaError:
    """Return the error for an incomplete batch. Kafka ignores such a batch unless its header is invalid."""
    _check_rest(records, 0)
    return _invalid(f"{len(records)} bytes hold no whole record batch")


def _check_rest(records: Buffer, position: int) -> None:
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


def _check_records(records: Buffer, header: BatchHeader, settings: LogSettings, now_ms: int) -> int:
    content = content_of(records, header, settings)
    latest_ms = inspect_few(content, header, settings, now_ms)
    if latest_ms is not None:
        return latest_ms
    steps = inspect_records(content, header, settings, now_ms)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            max_timestamp: int = end.value
            return max_timestamp


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, reason)
