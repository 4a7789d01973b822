"""Converts message sets to record batches and back.

Logs hold batches only (Kafka 3.9 ignores `message.format.version`), so an old producer's messages are converted before
they are appended, and records for an old consumer before they are sent. Down-conversion drops what the old formats
lack: headers, producers and transactions, whole control batches, and in v0 timestamps. Codecs are kept, except that old
formats have no zstd: the caller must not request it. Reference: `LogValidator`, `RecordsUtil.downConvert` and
`MemoryRecordsBuilder` of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, Buffer
from anabranch.protocol.records.batch_builder import BatchBuilder
from anabranch.protocol.records.compression import Compression
from anabranch.protocol.records.message_set import OPENED_MESSAGES_MAX, Message, build_message, build_wrapper
from anabranch.protocol.records.record import iter_records

_UNLIMITED: Final = 1 << 62
_INT64_MAX: Final = (1 << 63) - 1


def up_convert(messages: Iterable[Message]) -> bytes:
    """Build one uncompressed batch of all messages' records; there is at least one message, and no wrapper."""
    builder = BatchBuilder(limit_bytes=_UNLIMITED)
    for message in messages:
        builder.append(message.key, message.value, timestamp_ms=message.timestamp_ms)
    return builder.build()


def down_convert(batch: Buffer, position: int, header: BatchHeader, magic: int, first_offset: int) -> bytes:
    """Convert the batch to messages of a magic; empty if it has nothing for a consumer. Raises DecodeError.

    Uncompressed records before `first_offset` are left out: some consumers deliver any message that they receive first.
    A compressed batch stays one message, whose beginning consumers skip.
    """
    if header.is_control:
        return b""
    if header.record_count > OPENED_MESSAGES_MAX:
        raise DecodeError(f"{header.record_count} records are too many to convert", buffer=batch, position=position)
    attributes = LOG_APPEND_TIME if magic and header.is_log_append_time else 0
    messages = [
        Message(
            offset=record.offset,
            magic=magic,
            attributes=attributes,
            timestamp_ms=record.timestamp_ms if magic else NO_TIMESTAMP,
            key=record.key,
            value=record.value,
        )
        for record in iter_records(batch, position, headers_max=0)
        if header.codec or record.offset >= first_offset
    ]
    for message in messages:
        if not -_INT64_MAX - 1 <= message.timestamp_ms <= _INT64_MAX:
            raise DecodeError(f"timestamp {message.timestamp_ms}", buffer=batch, position=position)
        if not header.base_offset <= message.offset <= header.last_offset:
            raise DecodeError(f"a record at offset {message.offset}", buffer=batch, position=position)
    if not messages:
        return b""
    if header.codec == Compression.NONE:
        return b"".join(map(build_message, messages))
    return build_wrapper(messages, header.codec)
