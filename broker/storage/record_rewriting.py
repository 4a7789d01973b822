"""What becomes of a client's records before they are stored: converted from old formats, rewritten as the topic asks.

Nearly all batches pass as they are. What differs is the codec that the topic prescribes, who dates the records, and a
latest timestamp that is not that of any record: retention and searches go by it.
Reference: `LogValidator` of Kafka.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.broker.storage import old_formats
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.broker.storage.producer_state import BatchMetadata
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.records.batch import (
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    read_header,
    recompress,
    stamp_create_time,
    stamp_log_append_time,
)


class AppendInfo(NamedTuple):
    """Where a batch got to. An empty follower append has `last_offset` = `first_offset` - 1."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    max_timestamp: int
    record_count: int
    size_bytes: int
    duplicate: bool = False
    """The batch was in the log already; these are its offsets, and nothing has been appended."""


def duplicate(header: BatchHeader, batch: BatchMetadata, settings: LogSettings, log_start_offset: int) -> AppendInfo:
    """The answer to a batch that is in the log already."""
    return AppendInfo(
        batch.first_offset,
        batch.last_offset,
        batch.timestamp_ms if settings.stamps_time else NO_TIMESTAMP,
        log_start_offset,
        batch.timestamp_ms,
        header.record_count,
        header.size_bytes,
        duplicate=True,
    )


def nothing(log_start_offset: int) -> AppendInfo:
    """The answer to a message set without one whole message."""
    return AppendInfo(-1, -1, NO_TIMESTAMP, log_start_offset, NO_TIMESTAMP, 0, 0)


def converted(records: Buffer, settings: LogSettings) -> Buffer:
    """The batch in place of a message set; empty if not one message is whole."""
    return old_formats.converted(records, settings)


def changes_codec(header: BatchHeader, settings: LogSettings) -> bool:
    """Whether the topic prescribes another codec than the batch has."""
    return settings.codec is not None and settings.codec != header.codec and not header.is_control


def recompressed(records: Buffer, header: BatchHeader, settings: LogSettings) -> bytearray:
    """A sound batch with the codec of the topic. Raises KafkaError if that makes it too large."""
    codec = settings.codec
    assert codec is not None
    try:
        changed = recompress(
            records, header, codec, settings.compression_level, limit_bytes=settings.decompressed_bytes_max
        )
    except DecodeError as reason:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(reason)) from None
    if len(changed) > settings.max_message_bytes:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {len(changed)} bytes as {codec.name.lower()}")
    return changed


def rewritten(
    records: Buffer, header: BatchHeader, max_timestamp: int, settings: LogSettings, now_ms: int
) -> bytearray:
    """A batch with the codec and the timestamps the topic asks for; `max_timestamp` is that of the latest record."""
    if changes_codec(header, settings):
        changed = recompressed(records, header, settings)
        header = read_header(changed)
    else:
        changed = bytearray(records)
    if settings.stamps_time:
        stamp_log_append_time(changed, 0, header, now_ms)
    elif header.is_log_append_time or header.max_timestamp != max_timestamp:
        stamp_create_time(changed, 0, header, max_timestamp)
    return changed
