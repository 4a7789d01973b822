"""Whether a leader may append a message set, and the record batch that is appended in its place.

The rules are those of `validation` for formats v0 and v1, in Kafka's order (`UnifiedLog.analyzeAndValidateRecords`,
then `LogValidator`): every message within `max.message.bytes` and with a sound checksum; one format for all; a wrapper
alone; no wrapper that cannot be opened (what does not decompress is UNKNOWN_SERVER_ERROR, as Kafka happens to say).
All messages together become one batch, in the codec of the topic or the producer, which `validation` then looks at as
if it had come so. Imported when the first old producer shows up.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from broker.storage.settings import LogSettings
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.records.batch import MAGIC, NO_TIMESTAMP, Buffer, read_header, recompress
from protocol.records.compression import Compression
from protocol.records.conversion import up_convert
from protocol.records.message_set import (
    ChecksumError,
    Message,
    MessageHeader,
    WrapperError,
    check_crc,
    iter_headers,
    open_wrapper,
    read_message,
)

_LAST_CODEC: Final = Compression.LZ4
"""zstd came after message sets."""


def converted(records: Buffer, settings: LogSettings) -> Buffer:
    """The batch that says what a message set says; empty if there is no whole message. Raises KafkaError."""
    found = _checked(records, settings)
    if not found:
        return b""
    magic = found[0][1].magic
    other = next((header.magic for _, header in found if header.magic != magic), magic)
    if other != magic:
        raise _invalid(f"a message of magic {other} after one of magic {magic}")
    try:
        messages = [read_message(records, position, header) for position, header in found]
    except DecodeError as reason:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(reason)) from None
    codec = _codec_of(messages)
    try:
        batch = up_convert(chain.from_iterable(map(open_wrapper, messages)) if codec else messages)
    except ChecksumError as reason:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(reason)) from None
    except WrapperError as reason:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(reason)) from None
    except DecodeError as reason:
        raise _invalid(f"the wrapper cannot be opened: {reason}") from None
    if any(
        message.is_log_append_time and (settings.stamps_time or message.timestamp_ms == NO_TIMESTAMP)
        for message in messages
    ):
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "log append time is the broker's to set")
    target = settings.codec if settings.codec is not None else codec
    return recompress(batch, read_header(batch), target, settings.compression_level) if target else batch


def _checked(records: Buffer, settings: LogSettings) -> list[tuple[int, MessageHeader]]:
    found = []
    try:
        for position, header in iter_headers(records):
            if header.size_bytes > settings.max_message_bytes:
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"a message has {header.size_bytes} bytes, max.message.bytes is {settings.max_message_bytes}",
                )
            if header.magic < MAGIC and not check_crc(records, position, header):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the checksum of a message is wrong")
            found.append((position, header))
    except DecodeError as reason:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(reason)) from None
    return found


def _codec_of(messages: list[Message]) -> int:
    codec = next((message.codec for message in messages if message.codec), Compression.NONE)
    if codec and len(messages) > 1:
        raise _invalid("a compressed message beside others")
    if codec > max(Compression):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"compression codec {codec}")
    if codec > _LAST_CODEC:
        raise _invalid(f"compression codec {codec} in a message of magic {messages[0].magic}")
    return codec


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, reason)
