"""Message sets v0 and v1, compared with kafka-python's reader and writer."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import warnings
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.compression import Compression, lz4_with_broken_checksum, lz4_with_checksum
from anabranch.protocol.records.message_set import (
    ChecksumError,
    Message,
    build_message,
    build_wrapper,
    check_crc,
    iter_headers,
    open_wrapper,
    read_message,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of its own imports
    from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

OLD_CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
NOW_MS = 1_600_000_000_000


def messages_of(data: bytes) -> list[Message]:
    found = []
    for position, header in iter_headers(data):
        assert check_crc(data, position, header)
        found.append(read_message(data, position, header))
    return found


def some_messages(magic: int, offsets: tuple[int, ...] = (7, 8, 12)) -> list[Message]:
    contents = [(b"key", b"value" * 300), (None, b""), (b"", None)]
    return [
        Message(offset, magic, 0, NOW_MS + number if magic else -1, key, value)
        for number, (offset, (key, value)) in enumerate(zip(offsets, contents, strict=True))
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_set_survives_the_round_trip(magic: int) -> None:
    messages = some_messages(magic)
    data = b"".join(map(build_message, messages))
    for buffer in (data, bytearray(data), memoryview(data)):
        assert messages_of(buffer) == messages  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_survives_the_round_trip(magic: int, codec: Compression) -> None:
    messages = some_messages(magic)
    (wrapper,) = messages_of(build_wrapper(messages, codec))
    assert (wrapper.offset, wrapper.codec, wrapper.key) == (12, codec, None)
    assert wrapper.timestamp_ms == (NOW_MS + 2 if magic else -1)
    assert list(open_wrapper(wrapper)) == messages


def test_inner_offsets_are_relative_in_v1_and_absolute_in_v0() -> None:
    for magic, offsets in ((0, [7, 8, 12]), (1, [0, 1, 5])):
        (wrapper,) = messages_of(build_wrapper(some_messages(magic), Compression.GZIP))
        assert wrapper.value is not None
        inner = zlib.decompress(wrapper.value, 31)
        assert [header.offset for _, header in iter_headers(inner)] == offsets


def test_v1_wrapper_with_offset_0_does_not_shift_messages() -> None:
    (wrapper,) = messages_of(build_wrapper(some_messages(1, (0, 1, 2)), Compression.GZIP))
    assert [one.offset for one in open_wrapper(wrapper._replace(offset=0))] == [0, 1, 2]
    with pytest.raises(DecodeError, match="at offset 1 with a message at 2"):
        open_wrapper(wrapper._replace(offset=1))


def test_log_append_time_of_wrapper_applies_to_its_messages() -> None:
    messages = [one._replace(attributes=8) for one in some_messages(1)]
    (wrapper,) = messages_of(build_wrapper(messages, Compression.LZ4))
    assert wrapper.is_log_append_time
    assert {one.timestamp_ms for one in open_wrapper(wrapper)} == {NOW_MS + 2}


@pytest.mark.parametrize("codec", [Compression.NONE, *OLD_CODECS])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_of_kafka_python_is_read(magic: int, codec: Compression) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for number in range(50):
        assert builder.append(number, NOW_MS + number, b"key-%d" % number, b"value" * number)
    data = bytes(builder.build())
    messages = messages_of(data)
    if codec:
        (wrapper,) = messages
        messages = list(open_wrapper(wrapper))
    assert [(one.offset, one.key, one.value) for one in messages] == [
        (number, b"key-%d" % number, b"value" * number) for number in range(50)
    ]
    assert messages[-1].timestamp_ms == (NOW_MS + 49 if magic else -1)


@pytest.mark.parametrize("codec", [Compression.NONE, *OLD_CODECS])
@pytest.mark.parametrize("magic", [0, 1])
def test_message_set_is_read_by_kafka_python(magic: int, codec: Compression) -> None:
    messages = some_messages(magic)
    data = build_wrapper(messages, codec) if codec else b"".join(map(build_message, messages))
    records = MemoryRecords(data)
    seen = []
    while (batch := records.next_batch()) is not None:
        assert isinstance(batch, LegacyRecordBatch)
        assert batch.validate_crc()
        seen += [(one.offset, one.key, one.value, one.timestamp) for one in batch]
    assert seen == [(one.offset, one.key, one.value, one.timestamp_ms if magic else None) for one in messages]


def test_lz4_header_checksum_is_wrong_for_v0_only() -> None:
    frames = []
    for magic in (0, 1):
        (wrapper,) = messages_of(build_wrapper(some_messages(magic), Compression.LZ4))
        assert wrapper.value is not None
        frames.append(wrapper.value)
    assert frames[0][6] != 0x82 and frames[1][6] == 0x82
    assert lz4_with_checksum(frames[0])[6] == 0x82
    assert lz4_with_broken_checksum(frames[1])[6] == frames[0][6]
    # another header: content size (1234) and a flag more; the checksums are those of the reference implementation
    long = bytes.fromhex("04224d18 6c 40 d204000000000000 00")
    assert (lz4_with_checksum(long)[-1], lz4_with_broken_checksum(long)[-1]) == (0x77, 0xBE)
    longest = bytes.fromhex("04224d18 6d 40 d204000000000000 01000000 00")
    assert (lz4_with_checksum(longest)[-1], lz4_with_broken_checksum(longest)[-1]) == (0x43, 0x32)


def test_incomplete_message_at_end_is_skipped() -> None:
    whole, cut = map(build_message, some_messages(1)[:2])
    for size in range(len(cut)):
        assert len(messages_of(whole + cut[:size])) == 1


def changed(data: bytes, position: int, layout: str, value: int) -> bytes:
    buffer = bytearray(data)
    struct.pack_into(">" + layout, buffer, position, value)
    return bytes(buffer)


GOOD = build_message(Message(0, 1, 0, NOW_MS, b"key", b"value"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (changed(GOOD, 8, "i", 13), "a message of 13 bytes"),
        (changed(GOOD, 8, "i", -1), "a message of -1 bytes"),
        (changed(GOOD, 16, "b", 3), "magic 3"),
        (changed(GOOD, 16, "b", -1), "magic -1"),
        (changed(GOOD, 16, "b", 2), "no message of magic 2"),
        (changed(GOOD, 26, "i", 2**31 - 1), "2147483647 bytes do not fit"),
        (changed(GOOD, 26, "i", 13), "do not fit"),
        (changed(GOOD, 26, "i", 9), "cut off"),
        (changed(GOOD, 33, "i", 4), "1 bytes after"),
        (changed(GOOD, 33, "i", -1), "5 bytes after"),
        (changed(GOOD[:32], 8, "i", 20), "32 bytes are no message"),
    ],
)
def test_invalid_lengths_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        for position, header in iter_headers(data):
            read_message(data, position, header)


def wrapped(content: bytes, magic: int = 1, codec: int = Compression.GZIP, offset: int = 0) -> Message:
    packer = zlib.compressobj(wbits=31)
    return Message(offset, magic, codec, NOW_MS, None, packer.compress(content) + packer.flush())


@pytest.mark.parametrize(
    ("wrapper", "reason"),
    [
        (wrapped(b""), "without messages"),
        (wrapped(GOOD, magic=0), "magic 1 in a wrapper of magic 0"),
        (wrapped(build_message(wrapped(GOOD))), "wrapper in a wrapper"),
        (wrapped(GOOD[:-1] + b"E"), "checksum"),
        (wrapped(GOOD)._replace(value=None), "without a value"),
        (wrapped(GOOD)._replace(value=b"junk"), "do not decompress"),
        (wrapped(GOOD, codec=Compression.ZSTD), "codec 4"),
        (wrapped(GOOD, codec=7), "codec 7"),
        (Message(0, 0, Compression.LZ4, -1, None, b"\x04\x22"), "cut off"),
    ],
)
def test_malformed_wrappers_are_refused(wrapper: Message, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        list(open_wrapper(wrapper))


def test_wrong_inner_checksum_is_a_checksum_error() -> None:
    with pytest.raises(ChecksumError):
        list(open_wrapper(wrapped(GOOD[:-1] + b"E")))


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_bomb_allocates_no_more_than_limit(codec: Compression) -> None:
    messages = [Message(0, 1, 0, NOW_MS, None, bytes(32 << 20))]
    (bomb,) = messages_of(build_wrapper(messages, codec))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="more than"):
            list(open_wrapper(bomb, 1 << 20))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_messages_per_wrapper_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.protocol.records.message_set.OPENED_MESSAGES_MAX", 5)
    assert len(list(open_wrapper(wrapped(GOOD * 5)))) == 5
    with pytest.raises(DecodeError, match="more than 5 messages"):
        list(open_wrapper(wrapped(GOOD * 6)))


def take_apart(data: bytes) -> int:
    """Everything that a broker does with a message set; how many bytes came out."""
    size = 0
    for position, header in iter_headers(data):
        message = read_message(data, position, header)
        for one in open_wrapper(message, 1 << 20) if message.codec else [message]:
            size += len(one.key or b"") + len(one.value or b"")
    return size


@given(st.binary(max_size=300))
def test_random_data_is_decoded_or_a_decode_error(data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        assert take_apart(data) <= 1 << 20


@given(
    st.sampled_from([0, 1]),
    st.sampled_from([Compression.NONE, *OLD_CODECS]),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=4),
    st.booleans(),
)
def test_corrupt_data_is_decoded_or_a_decode_error(
    magic: int, codec: Compression, damage: list[tuple[int, int]], inside: bool
) -> None:
    """`inside`: damage before compression, which no outer checksum covers."""
    messages = some_messages(magic)
    data = bytearray(b"".join(map(build_message, messages)))
    if codec and not inside:
        data = bytearray(build_wrapper(messages, codec))
    for position, flip in damage:
        data[position % len(data)] ^= flip
    if codec and inside:
        data = bytearray(build_message(wrapped(bytes(data), magic)))
    with contextlib.suppress(DecodeError):
        assert take_apart(bytes(data)) <= 1 << 20
