"""Rewrites a client's batch before it is stored: converts old formats, sets the topic's codec and timestamps.

Nearly all batches are stored unchanged. A batch is rewritten for another codec, for log append time, or if its header's
latest timestamp is wrong, since retention and searches use that. Source: Kafka's `LogValidator`.
"""

from __future__ import annotations

from anabranch.broker.storage import old_formats
from anabranch.broker.storage.log_settings import LogSettings
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.records.batch import (
    BatchHeader,
    Buffer,
    read_header,
    recompress,
    set_create_time,
    set_log_append_time,
)


def convert(records: Buffer, settings: LogSettings) -> Buffer:
    """Convert a message set to a batch; empty if it has no complete message."""
    return old_formats.convert(records, settings)


def changes_codec(header: BatchHeader, settings: LogSettings) -> bool:
    """Check whether the topic prescribes another codec than the batch has."""
    return settings.codec is not None and settings.codec != header.codec and not header.is_control


def recompress_batch(records: Buffer, header: BatchHeader, settings: LogSettings) -> bytearray:
    """Recompress a valid batch with the topic's codec. Raises KafkaError, also if the result is too large."""
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


def rewrite_batch(
    records: Buffer, header: BatchHeader, max_timestamp: int, settings: LogSettings, now_ms: int
) -> bytearray:
    """Rewrite a batch with the topic's codec and timestamps; `max_timestamp` is the latest of its records."""
    if changes_codec(header, settings):
        changed = recompress_batch(records, header, settings)
        header = read_header(changed)
    else:
        changed = bytearray(records)
    if settings.uses_log_append_time:
        set_log_append_time(changed, 0, header, now_ms)
    elif header.is_log_append_time or header.max_timestamp != max_timestamp:
        set_create_time(changed, 0, header, max_timestamp)
    return changed
