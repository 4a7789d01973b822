"""Validates message sets (formats v0 and v1) and converts them to record batches before a leader appends them.

The rules are in Kafka's order (`UnifiedLog.analyzeAndValidateRecords`, then `LogValidator`). Every message is within
`max.message.bytes` and has a valid checksum; all have one format; a wrapper is the only message, and can be opened (a
failed decompression is UNKNOWN_SERVER_ERROR, as in Kafka). All messages become one batch with the codec of the topic or
the producer. `validation` then checks this batch like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from anabranch.broker.storage.log_settings import LogSettings
from anabranch.protocol.errors import DecodeError, ErrorCode, KafkaError
from anabranch.protocol.records.batch import (
    CODEC_MASK,
    MAGIC,
    MESSAGE_FLAGS_POSITION,
    NO_TIMESTAMP,
    Buffer,
    read_header,
    recompress,
)
from anabranch.protocol.records.compression import Compression
from anabranch.protocol.records.conversion import up_convert
from anabranch.protocol.records.message_set import (
    ChecksumError,
    Message,
    WrapperError,
    check_crc,
    iter_headers,
    open_wrapper,
    read_message,
)

_LAST_CODEC: Final = Compression.LZ4
"""The last codec for message sets; zstd is newer than they are."""
_RECORD_BYTES_MIN: Final = 7
"""The smallest size of a record without its key and value."""


def convert(records: Buffer, settings: LogSettings) -> Buffer:
    """Convert a message set to a batch; empty if it has no complete message. Raises KafkaError."""
    magic, codec = _check(records, settings)
    if magic is None:
        return b""
    target = settings.codec if settings.codec is not None else codec
    limit_bytes = settings.decompressed_bytes_max if target else settings.max_message_bytes
    messages = _messages(records, settings)
    try:
        batch = up_convert(
            _limit_size(chain.from_iterable(map(open_wrapper, messages)) if codec else messages, limit_bytes)
        )
    except ChecksumError as reason:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(reason)) from None
    except WrapperError as reason:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(reason)) from None
    except DecodeError as reason:
        raise _invalid(f"cannot decompress the wrapper message: {reason}") from None
    return recompress(batch, read_header(batch), target, settings.compression_level) if target else batch


def _check(records: Buffer, settings: LogSettings) -> tuple[int | None, int]:
    """Return the format of all messages, None if there are none, and the codec of a single wrapper."""
    magics: set[int] = set()
    count = codec = 0
    try:
        for position, header in iter_headers(records):
            if header.size_bytes > settings.max_message_bytes:
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"a message has {header.size_bytes} bytes, max.message.bytes is {settings.max_message_bytes}",
                )
            if header.magic < MAGIC:
                if not check_crc(records, position, header):
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the checksum of a message is wrong")
                codec = codec or records[position + MESSAGE_FLAGS_POSITION] & CODEC_MASK
            magics.add(header.magic)
            count += 1
    except DecodeError as reason:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(reason)) from None
    if len(magics) > 1:
        raise _invalid(f"messages of magic {' and '.join(map(str, sorted(magics)))}")
    magic = min(magics, default=None)
    if codec and count > 1:
        raise _invalid("a compressed message among other messages")
    if codec > max(Compression):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"compression codec {codec}")
    if codec > _LAST_CODEC:
        raise _invalid(f"compression codec {codec} in a message of magic {magic}")
    return magic, codec


def _messages(records: Buffer, settings: LogSettings) -> Iterator[Message]:
    for position, header in iter_headers(records):
        try:
            message = read_message(records, position, header)
        except DecodeError as reason:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(reason)) from None
        if message.is_log_append_time and (settings.uses_log_append_time or message.timestamp_ms == NO_TIMESTAMP):
            raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "log append time can only be set by the broker")
        yield message


def _limit_size(messages: Iterable[Message], limit_bytes: int) -> Iterator[Message]:
    """Limit messages to the size of a batch: converting many small ones would cost many times the request's size."""
    size_bytes = 0
    for message in messages:
        size_bytes += _RECORD_BYTES_MIN + len(message.key or b"") + len(message.value or b"")
        if size_bytes > limit_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE, f"the messages together are a batch of over {limit_bytes} bytes"
            )
        yield message


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, reason)
