"""From message sets to record batches and back.

Logs hold batches only (Kafka 3.9 ignores `message.format.version`), so what an old producer sends is converted before
it is appended, and what an old consumer fetches before it is sent. Going down loses what the old formats have no place
for: headers, producers and transactions, whole control batches, and in v0 timestamps. Codecs are kept, except that old
formats know no zstd: asking for that is the caller's mistake.
Reference: `LogValidator`, `RecordsUtil.downConvert` and `MemoryRecordsBuilder` of Kafka.
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
    """One batch, uncompressed, with the records of all messages; None of them wraps others, there is at least one."""
    builder = BatchBuilder(limit_bytes=_UNLIMITED)
    for message in messages:
        builder.append(message.key, message.value, timestamp_ms=message.timestamp_ms)
    return builder.build()


def down_convert(batch: Buffer, position: int, header: BatchHeader, magic: int, first_offset: int) -> bytes:
    """The batch as messages of a magic; empty if there is nothing in it for a consumer. Raises DecodeError.

    Uncompressed records before `first_offset` are left out: some consumers hand out whatever message they get first. A
    compressed batch stays one message, of which consumers skip the beginning.
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
        for record in iter_records(batch, position, headers=False)
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
