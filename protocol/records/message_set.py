"""Message sets, formats v0 and v1 (magic 0 and 1): walk, check, read, open compressed ones, build.

Producers before Kafka 0.11 send these, and consumers before it read them. A set is a sequence of messages; a message
with a codec wraps a whole set in its value. Offsets inside a wrapper are absolute in v0; in v1 they count from the
first inner message, and the wrapper bears the last one's. The checksum is CRC-32 over everything from `magic` on. lz4
of v0 has a header checksum that was computed over the wrong bytes (KAFKA-3160): whatever it says is accepted, and what
is written for a v0 reader has the same mistake.

Every length is checked: an invalid one is a DecodeError, an incomplete message at the end is left out as in Kafka, and
a wrapper opens to no more than a limit. Reference: KIP-31, KIP-32, `LegacyRecord`, `AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MESSAGE_FLAGS_POSITION,
    NO_TIMESTAMP,
    Buffer,
)
from anabranch.protocol.records.compression import (
    Compression,
    compress,
    decompress,
    lz4_with_broken_checksum,
    lz4_with_checksum,
)

OPENED_BYTES_MAX: Final = 64 * 1024 * 1024
"""The content limit of a wrapper: its messages become objects, so this is less than a batch may decompress to."""
OPENED_MESSAGES_MAX: Final = 250_000
"""The message limit of a wrapper: a small one of only empty messages would occupy a node for long."""
MESSAGE_BYTES_MIN: Final = 14
"""The minimum of a message's size field: v0 without key and value."""

_CRC_START: Final = 16
_TO_MAGIC: Final = struct.Struct(">qiIb")
_HEAD_BYTES: Final = (18, 26)
"""Per magic, the size of the fields before the key's length."""
_KEY_AND_VALUE_BYTES_MIN: Final = 8
_I64: Final = struct.Struct(">q")
_I32: Final = struct.Struct(">i")
_U32: Final = struct.Struct(">I")


class ChecksumError(DecodeError):
    """A message inside a wrapper does not match its checksum."""


class WrapperError(DecodeError):
    """A wrapper's content does not decompress, or exceeds the limit."""


class MessageHeader(NamedTuple):
    """The facts about a message, or a batch among messages, that need no decoding."""

    offset: int
    size_bytes: int
    """The whole message, its offset and size included."""
    crc: int
    magic: int


class Message(NamedTuple):
    """One message; `value` is another message set if it is `compressed`."""

    offset: int
    magic: int
    attributes: int
    timestamp_ms: int
    """-1 in v0."""
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """The codec of the inner set, 0 for a message without one."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether a broker has set the timestamp."""
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME)


def iter_headers(buffer: Buffer) -> Iterator[tuple[int, MessageHeader]]:
    """Yield position and header of every whole entry, of any format up to v2, without an incomplete last one."""
    position, end = 0, len(buffer)
    while position + LOG_OVERHEAD_BYTES <= end:
        (size,) = _I32.unpack_from(buffer, position + 8)
        if size < MESSAGE_BYTES_MIN:
            raise DecodeError(f"a message of {size} bytes", buffer=buffer, position=position)
        if position + _TO_MAGIC.size > end:
            return
        offset, size, crc, magic = _TO_MAGIC.unpack_from(buffer, position)
        if not 0 <= magic <= MAGIC:
            raise DecodeError(f"a message of magic {magic}", buffer=buffer, position=position)
        following = position + LOG_OVERHEAD_BYTES + size
        if following > end:
            return
        yield position, MessageHeader(offset, following - position, crc, magic)
        position = following


def check_crc(buffer: Buffer, position: int, header: MessageHeader) -> bool:
    """Whether the message at a position matches its checksum."""
    view = memoryview(buffer)[position + _CRC_START : position + header.size_bytes]
    return zlib.crc32(view) == header.crc


def read_message(buffer: Buffer, position: int, header: MessageHeader) -> Message:
    """Read the message at a position. Raises DecodeError for invalid lengths."""
    magic = header.magic
    end = position + header.size_bytes
    if magic >= MAGIC or header.size_bytes < _HEAD_BYTES[magic] + _KEY_AND_VALUE_BYTES_MIN:
        raise DecodeError(
            f"{header.size_bytes} bytes are no message of magic {magic}", buffer=buffer, position=position
        )
    timestamp = _I64.unpack_from(buffer, position + 18)[0] if magic else NO_TIMESTAMP
    key, after = _read_bytes(buffer, position + _HEAD_BYTES[magic], end)
    value, after = _read_bytes(buffer, after, end)
    if after != end:
        raise DecodeError(f"{end - after} bytes after a message's value", buffer=buffer, position=after)
    return Message(header.offset, magic, buffer[position + MESSAGE_FLAGS_POSITION], timestamp, key, value)


def _read_bytes(buffer: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    start = position + 4
    if start > end:
        raise DecodeError("a message is cut off", buffer=buffer, position=position)
    (length,) = _I32.unpack_from(buffer, position)
    if length < 0:
        return None, start
    if length > end - start:
        raise DecodeError(f"{length} bytes do not fit into a message", buffer=buffer, position=position)
    return bytes(buffer[start : start + length]), start + length


def open_wrapper(wrapper: Message, limit_bytes: int = OPENED_BYTES_MAX) -> Iterator[Message]:
    """Yield the messages inside a compressed one, with their absolute offsets and effective timestamps.

    Raises DecodeError, also while iterating, and also for a wrapper in a wrapper. A v1 wrapper with offset 0 comes from
    a producer that does not number: its messages keep their offsets.
    """
    content = _decompress(wrapper, limit_bytes)
    base_offset = 0
    if wrapper.magic and wrapper.offset:
        last = NO_TIMESTAMP
        for _, header in iter_headers(content):
            last = header.offset
        if wrapper.offset < last:
            raise DecodeError(f"a wrapper at offset {wrapper.offset} with a message at {last}")
        base_offset = wrapper.offset - last
    return _inner(wrapper, content, base_offset)


def _inner(wrapper: Message, content: bytes, base_offset: int) -> Iterator[Message]:
    count = 0
    for position, header in iter_headers(content):
        if header.magic != wrapper.magic:
            raise DecodeError(f"a message of magic {header.magic} in a wrapper of magic {wrapper.magic}")
        if not check_crc(content, position, header):
            raise ChecksumError("the checksum of a message in a wrapper is wrong", buffer=content, position=position)
        message = read_message(content, position, header)
        if message.codec:
            raise DecodeError("a wrapper in a wrapper", buffer=content, position=position)
        count += 1
        if count > OPENED_MESSAGES_MAX:
            raise DecodeError(f"a wrapper of more than {OPENED_MESSAGES_MAX} messages")
        offset = base_offset + message.offset
        timestamp = wrapper.timestamp_ms if wrapper.is_log_append_time else message.timestamp_ms
        yield message._replace(offset=offset, timestamp_ms=timestamp)
    if not count:
        raise DecodeError("a wrapper without messages")


def _decompress(wrapper: Message, limit_bytes: int) -> bytes:
    if wrapper.value is None:
        raise DecodeError("a wrapper without a value")
    if wrapper.codec not in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
        raise DecodeError(f"codec {wrapper.codec} in a message of magic {wrapper.magic}")
    value = wrapper.value
    try:
        if wrapper.codec == Compression.LZ4 and wrapper.magic == 0:
            value = lz4_with_checksum(value)
        return decompress(wrapper.codec, value, limit_bytes)
    except DecodeError as reason:
        raise WrapperError(str(reason)) from None


# ------------------------------------------------------------------------------------------------------------ building


def build_message(message: Message) -> bytes:
    """Build the bytes of one message, checksum included."""
    key, value = message.key, message.value
    parts = [
        bytes((message.magic, message.attributes)),
        _I64.pack(message.timestamp_ms) if message.magic else b"",
        _I32.pack(-1 if key is None else len(key)),
        key or b"",
        _I32.pack(-1 if value is None else len(value)),
        value or b"",
    ]
    body = b"".join(parts)
    return b"".join((_I64.pack(message.offset), _I32.pack(len(body) + 4), _U32.pack(zlib.crc32(body)), body))


def build_wrapper(messages: list[Message], codec: int) -> bytes:
    """Build one compressed message that holds others, which have their absolute offsets, in order."""
    first, last = messages[0], messages[-1]
    magic = first.magic
    base_offset = first.offset if magic else 0
    content = compress(
        codec, b"".join(build_message(one._replace(offset=one.offset - base_offset)) for one in messages)
    )
    if codec == Compression.LZ4 and magic == 0:
        content = lz4_with_broken_checksum(content)
    return build_message(
        Message(
            offset=last.offset,
            magic=magic,
            attributes=codec | (first.attributes & LOG_APPEND_TIME),
            timestamp_ms=max(one.timestamp_ms for one in messages),
            key=None,
            value=content,
        )
    )
