"""Frames from any fragmentation; false lengths; memory bounded by the received bytes."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol import framing
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.framing import BUFFER_BYTES, FrameReader, ReceiveBuffer


def framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def drain(reader: FrameReader) -> list[bytes]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(frame)
    return frames


sizes = st.integers(0, 40) | st.integers(BUFFER_BYTES - 8, BUFFER_BYTES + 8) | st.integers(200_000, 300_000)


@given(st.lists(sizes, max_size=6), st.lists(st.integers(1, 150_000), min_size=1, max_size=8), st.booleans())
def test_frames_do_not_depend_on_chunks(lengths: list[int], cuts: list[int], buffered: bool) -> None:
    frames = [bytes([index]) * length for index, length in enumerate(lengths, 1)]
    stream, reader, found, turn = memoryview(framed(*frames)), FrameReader(), [], 0
    while stream:
        piece, stream = stream[: cuts[turn % len(cuts)]], stream[cuts[turn % len(cuts)] :]
        turn += 1
        if buffered:
            while piece:
                room = reader.get_buffer()
                assert len(room) > 0
                count = min(len(room), len(piece))
                room[:count] = piece[:count]
                reader.buffer_updated(count)
                piece = piece[count:]
                found += drain(reader)
        else:
            reader.feed(piece)
            found += drain(reader)
    assert found == frames
    assert reader.buffered == 0


def test_frames_are_read_byte_by_byte() -> None:
    reader, found = FrameReader(), []
    for byte in framed(b"abc", b"", b"d"):
        reader.feed(bytes((byte,)))
        found += drain(reader)
    assert found == [b"abc", b"", b"d"]


def test_missing_bytes_of_a_frame_that_has_begun_are_counted() -> None:
    reader = FrameReader()
    missing = []
    for byte in framed(b"abc"):
        reader.feed(bytes((byte,)))
        missing.append(reader.missing)
    assert missing == [0, 0, 0, 3, 2, 1, 0], "unknown before the length is whole"


@pytest.mark.parametrize("length", [-1, -(2**31), 101, 2**31 - 1])
def test_negative_or_too_large_length_is_refused(length: int) -> None:
    reader = FrameReader(frame_bytes_max=100)
    reader.feed(framed(b"good"))
    reader.feed(length.to_bytes(4, "big", signed=True))
    assert reader.next_frame() == b"good"
    for _ in range(2):
        with pytest.raises(DecodeError, match=f"frame of {length} bytes, allowed are 0 to 100"):
            reader.next_frame()


@pytest.mark.parametrize(
    ("begin", "named"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS handshake; this port is not a TLS port"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "a TLS alert; this port is not a TLS port"),
        (b"GET /metrics HTTP/1.1\r\n", "an HTTP request; this port uses Kafka's protocol"),
        (b"HTTP/1.1 400 Bad Request\r\n", "an HTTP request; this port uses Kafka's protocol"),
        (b"\x7f\x03\x01\x02", r"allowed are 0 to 104857600 \[7f"),
    ],
)
def test_other_protocols_are_named_in_the_error(begin: bytes, named: str) -> None:
    reader = FrameReader()
    reader.feed(framed(b"good") + begin)
    assert reader.next_frame() == b"good"
    with pytest.raises(DecodeError, match=named):
        reader.next_frame()


def test_bytes_that_are_no_frame_are_returned_once() -> None:
    reader = FrameReader()
    reader.feed(struct.pack(">i", 3) + b"one" + b"\x16\x03\x01 hello")
    assert reader.next_frame() == b"one"
    assert reader.give_back() == b"\x16\x03\x01 hello"
    assert reader.give_back() == b"" and reader.next_frame() is None
    reader.feed(struct.pack(">i", 3) + b"two")
    assert reader.next_frame() == b"two"


def test_largest_allowed_frame_is_accepted() -> None:
    reader = FrameReader(frame_bytes_max=100)
    reader.feed(framed(bytes(100)))
    assert reader.next_frame() == bytes(100)


@pytest.mark.parametrize("arrived", [9, BUFFER_BYTES, 3 * BUFFER_BYTES])
def test_declared_length_reserves_no_more_than_received_bytes(arrived: int) -> None:
    landing, piece = ReceiveBuffer(), bytes(max(3, arrived // 4096))
    tracemalloc.start()
    try:
        readers = [FrameReader(landing=landing) for _ in range(3)]
        for reader in readers:
            reader.feed((100_000_000).to_bytes(4, "big"))
            for _ in range(arrived // len(piece)):
                reader.feed(piece)
            assert reader.next_frame() is None
            assert len(reader.get_buffer()) > 0
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3 * (2 * arrived + 2 * BUFFER_BYTES)


def test_buffer_of_large_frame_is_released() -> None:
    reader = FrameReader()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        reader.feed(framed(bytes(5_000_000)))
        assert len(reader.next_frame() or b"") == 5_000_000
        reader.get_buffer()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2 * BUFFER_BYTES


def test_growing_copies_each_byte_a_bounded_number_of_times() -> None:
    """A frame of many pieces must not be copied anew for every piece."""
    reader, capacities = FrameReader(), set()
    remaining = framed(bytes(8_000_000))
    while remaining:
        room = reader.get_buffer()
        capacities.add(id(room.obj))
        count = min(len(room), 4096, len(remaining))
        room[:count] = remaining[:count]
        reader.buffer_updated(count)
        remaining = remaining[count:]
    assert len(capacities) <= 10
    assert len(reader.next_frame() or b"") == 8_000_000


def test_frame_is_not_changed_by_later_bytes() -> None:
    reader = FrameReader()
    reader.feed(framed(b"first"))
    frame = reader.next_frame()
    reader.feed(framed(b"other"))
    assert frame == b"first" and reader.next_frame() == b"other"


def test_small_frames_share_one_buffer() -> None:
    reader = FrameReader()
    reader.feed(framed(b"x"))
    reader.next_frame()
    buffer = reader.get_buffer().obj
    for _ in range(1000):
        reader.feed(framed(bytes(500), bytes(300))[:-1])
        assert reader.next_frame() is not None and reader.next_frame() is None
        reader.feed(b"\0")
        assert reader.next_frame() == bytes(300)
    assert reader.get_buffer().obj is buffer


def test_next_read_has_room_for_many_frames() -> None:
    reader = FrameReader()
    reader.feed(framed(b"first", bytes(500))[:-1])
    assert reader.next_frame() == b"first" and reader.next_frame() is None
    assert len(reader.get_buffer()) > BUFFER_BYTES - 1000
    reader.feed(b"\0")
    assert reader.next_frame() == bytes(500)


def test_readers_with_shared_receive_buffer_interleave_within_frames() -> None:
    landing = ReceiveBuffer()
    readers = [FrameReader(landing=landing) for _ in range(3)]
    streams = [memoryview(framed(*(bytes([number]) * size for size in (5, 3000, 70_000, 2)))) for number in range(3)]
    found: list[list[bytes]] = [[], [], []]
    for start in range(0, len(streams[0]), 977):
        for reader, stream, frames in zip(readers, streams, found, strict=True):
            reader.feed(stream[start : start + 977])
            frames += drain(reader)
    assert found == [[bytes([number]) * size for size in (5, 3000, 70_000, 2)] for number in range(3)]


def test_frame_size_limit_applies_when_frame_is_returned() -> None:
    """An unauthenticated peer may send only small frames, and may have sent later ones already."""
    reader = FrameReader(frame_bytes_max=10)
    reader.feed(framed(b"login", bytes(50), b"after"))
    assert reader.next_frame() == b"login"
    with pytest.raises(DecodeError, match="frame of 50 bytes, allowed are 0 to 10"):
        reader.next_frame()
    reader.frame_bytes_max = 100
    assert drain(reader) == [bytes(50), b"after"]
    reader.feed(framed(bytes(50)))
    reader.frame_bytes_max = 10
    for _ in range(2):
        with pytest.raises(DecodeError, match="frame of 50 bytes, allowed are 0 to 10"):
            reader.next_frame()
    assert reader.buffered == 54


@pytest.mark.parametrize("length", [-1, 101])
def test_bytes_behind_a_refused_length_are_buffered_and_ignored(length: int) -> None:
    """The reader may be busy, and sees the length later."""
    reader = FrameReader(frame_bytes_max=100)
    reader.feed(length.to_bytes(4, "big", signed=True))
    for _ in range(300):
        reader.feed(bytes(1000))
    assert reader.buffered == 300_004
    with pytest.raises(DecodeError, match=f"frame of {length} bytes"):
        reader.next_frame()


@pytest.mark.parametrize("size_bytes", [100, 20_000, 60_000, 1_000_000])
def test_idle_reader_holds_no_buffer(size_bytes: int) -> None:
    landing = ReceiveBuffer()
    tracemalloc.start()
    try:
        readers = [FrameReader(landing=landing) for _ in range(3)]
        for reader in readers:
            for _ in range(3):
                reader.get_buffer()
                reader.feed(framed(bytes(size_bytes)))
                assert reader.next_frame() is not None
        held = held_here()
    finally:
        tracemalloc.stop()
    assert held < 10 * 2_000


def held_here() -> int:
    """The bytes that the frames' module and this one hold: other threads of the process take memory, too."""
    ours = [tracemalloc.Filter(inclusive=True, filename_pattern=one) for one in (framing.__file__, __file__)]
    return sum(one.size for one in tracemalloc.take_snapshot().filter_traces(ours).traces)


def test_frame_of_same_size_as_previous_one_is_not_moved() -> None:
    reader, moved = FrameReader(), []
    for _ in range(2):
        remaining, buffers = memoryview(framed(bytes(900_000))), list[object]()
        while remaining:
            room = reader.get_buffer()
            buffers += [] if buffers and buffers[-1] is room.obj else [room.obj]
            count = min(len(room), len(remaining))
            room[:count] = remaining[:count]
            reader.buffer_updated(count)
            remaining = remaining[count:]
        assert len(reader.next_frame() or b"") == 900_000
        moved.append(len(buffers))
    assert moved[0] > 3 and moved[1] == 2
