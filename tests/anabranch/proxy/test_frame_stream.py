"""Passed bytes stay the same in any pieces; collected frames are complete; claimed lengths cost nothing."""

from __future__ import annotations

import random
import struct

import pytest

from anabranch.protocol.errors import DecodeError
from anabranch.proxy.frame_stream import FrameStream


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def through(stream: FrameStream, pieces: list[bytes]) -> tuple[bytes, list[bytes]]:
    """What has passed and what was gathered: messages that begin with g are."""
    passed, gathered = b"", []
    for piece in pieces:
        stream.feed(piece)
        while True:
            if stream.is_gathering:
                frame = stream.take_gathered()
                if frame is None:
                    break
                gathered.append(frame)
            if stream.passing():
                break
            opened = stream.next_message()
            if opened is None or (len(opened[0]) <= opened[1] < opened[2]):
                break
            buffer, start, end = opened
            if end > start and buffer[start] == ord("g"):
                passed += stream.take_passed()
                stream.gather()
            else:
                stream.let_pass()
        passed += stream.take_passed()
    return passed, gathered


@pytest.mark.parametrize("seed", range(20))
def test_frames_do_not_depend_on_chunks(seed: int) -> None:
    rng = random.Random(seed)
    messages = [rng.choice([b"p", b"g", b""]) + b"x" * rng.choice([0, 1, 7, 300, 5000]) for _ in range(50)]
    wire, pieces = b"".join(map(framed, messages)), []
    while wire:
        size = rng.choice([1, 3, 10, 1000, 20000])
        pieces.append(wire[:size])
        wire = wire[size:]
    stream = FrameStream(10_000)
    passed, gathered = through(stream, pieces)
    assert passed == b"".join(framed(one) for one in messages if not one.startswith(b"g"))
    assert gathered == [one for one in messages if one.startswith(b"g")]
    assert stream.held_bytes == stream.missing_bytes == 0


def test_chunk_of_whole_frames_is_not_copied() -> None:
    stream, chunk = FrameStream(10), framed(b"p" * 1000) + framed(b"p")
    stream.feed(chunk)
    stream.let_pass()
    assert not stream.passing()
    stream.let_pass()
    assert not stream.passing()
    assert stream.take_passed() is chunk


def test_passing_frame_is_never_buffered_and_may_have_any_size() -> None:
    stream = FrameStream(10)
    stream.feed(struct.pack(">i", 1 << 30) + b"p")
    stream.let_pass()
    for _ in range(100):
        assert stream.passing()
        stream.take_passed()
        assert stream.held_bytes == 0
        stream.feed(b"x" * 1000)


def test_too_large_or_invalid_length_is_an_error() -> None:
    stream = FrameStream(10)
    stream.feed(struct.pack(">i", 11))
    with pytest.raises(DecodeError, match="11 bytes, allowed are 10"):
        stream.gather()
    for begin, what in (
        (b"\xff\xff\xff\xff", "-1 bytes"),
        (b"GET / HTTP", "an HTTP request"),
        (b"\x16\x03\1\2", "TLS"),
    ):
        stream = FrameStream(10)
        stream.feed(begin)
        with pytest.raises(DecodeError, match=what):
            stream.next_message()


def test_missing_bytes_are_reported() -> None:
    stream = FrameStream(100)
    stream.feed(struct.pack(">i", 50) + b"g" * 20)
    stream.gather()
    assert (stream.held_bytes, stream.missing_bytes, stream.take_gathered()) == (20, 30, None)
    stream.feed(b"g" * 31)
    assert (stream.missing_bytes, stream.take_gathered(), stream.held_bytes) == (0, b"g" * 50, 1)
