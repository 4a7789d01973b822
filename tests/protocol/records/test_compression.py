from __future__ import annotations

import contextlib
import gzip
import struct
import tracemalloc

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import DecodeError
from anabranch.protocol.records.compression import Compression, TooMuchError, compress, decompress

CODECS = list(Compression)
REAL_CODECS = CODECS[1:]
TEXT = b"every key keeps its order; " * 10_000  # 270 kB: several blocks of every codec
NOISE = bytes((i * i * 31 + (i >> 3) * 7) & 255 for i in range(200_000))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, TEXT[: 64 * 1024], TEXT[: 32 * 1024]], ids=len)
def test_compressed_buffer_survives_the_round_trip(codec: Compression, data: bytes) -> None:
    for buffer in (data, bytearray(data), memoryview(data)):
        compressed = compress(codec, buffer)
        assert decompress(codec, memoryview(compressed)) == data


@given(st.sampled_from(CODECS), st.binary(max_size=4096))
def test_any_bytes_survive_the_round_trip(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_text_is_compressed(codec: Compression) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 10


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Compression.GZIP, (1, 9)), (Compression.LZ4, (3, 12, 17)), (Compression.ZSTD, (-131072, 1, 22))],
)
def test_levels_trade_time_for_size(codec: Compression, levels: tuple[int, ...]) -> None:
    data = b"".join(b"%d " % (n * n % 997) for n in range(30_000))
    compressed = [compress(codec, data, level) for level in levels]
    assert {decompress(codec, one) for one in compressed} == {data}
    sizes = [len(one) for one in compressed]
    assert sizes[0] > sizes[1] >= sizes[-1]
    noise = NOISE + bytes(range(256)) * 200
    assert decompress(codec, compress(codec, noise, levels[-1])) == noise


def test_lz4_frames_have_independent_blocks_as_java_requires() -> None:
    frame = compress(Compression.LZ4, TEXT)
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0x20, "FLG: block independence"
    assert frame[5] == 0x40, "BD: 64 KiB blocks"
    assert bytes(cramjam.lz4.decompress(frame)) == TEXT, "another reader agrees, header checksum included"


def test_lz4_reads_dependent_blocks_and_content_checksums() -> None:
    frame = bytes(cramjam.lz4.compress(TEXT))
    assert not frame[4] & 0x20
    assert frame[4] & 0x04
    assert decompress(Compression.LZ4, frame) == TEXT


def test_snappy_is_written_in_xerial_framing() -> None:
    framed = compress(Compression.SNAPPY, TEXT)
    assert framed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (size,) = struct.unpack_from(">i", framed, 16)
    assert bytes(cramjam.snappy.decompress_raw(framed[20 : 20 + size])) == TEXT[: 32 * 1024]


def test_snappy_reads_raw_blocks_as_librdkafka_writes_them() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_gzip_reads_several_members() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def test_gzip_output_is_read_by_standard_library() -> None:
    assert gzip.decompress(compress(Compression.GZIP, TEXT)) == TEXT


def test_zstd_reads_frames_with_and_without_size_and_skippable_frames() -> None:
    stream = cramjam.zstd.Compressor()
    stream.compress(TEXT)
    unsized = bytes(stream.finish())
    sized = bytes(cramjam.zstd.compress(TEXT))
    skipped = struct.pack("<II", 0x184D2A53, 3) + b"abc"
    assert decompress(Compression.ZSTD, unsized) == TEXT
    assert decompress(Compression.ZSTD, sized + skipped + unsized) == TEXT * 2


def test_zstd_frame_with_excessive_declared_size_is_refused() -> None:
    """A decoder would allocate the memory first."""
    blocks = b"".join(struct.pack("<I", 1 << 20 | 1 << 1 | last)[:3] + b"x" for last in (0,) * 15 + (1,))
    for descriptor, size in (("e0", struct.pack("<Q", 1 << 40)), ("a0", struct.pack("<I", 1 << 31))):
        frame = bytes.fromhex("28b52ffd" + descriptor) + size + blocks
        with pytest.raises(TooMuchError):
            decompress(Compression.ZSTD, frame, 1 << 20)
    skipped = struct.pack("<II", 0x184D2A53, 9) + b"\xff" * 9
    unsized = bytes.fromhex("28b52ffd 00 38") + blocks
    assert len(decompress(Compression.ZSTD, skipped + unsized, 1 << 21)) == 1 << 21


@pytest.mark.parametrize("codec", CODECS)
def test_limit_is_exact(codec: Compression) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, len(TEXT)) == TEXT
    with pytest.raises(DecodeError, match=f"more than {len(TEXT) - 1} bytes"):
        decompress(codec, compressed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_bomb_allocates_no_more_than_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(64 * 1024 * 1024))
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="more than"):
            decompress(codec, bomb, 1024 * 1024)
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_truncated_data_is_a_decode_error(codec: Compression) -> None:
    compressed = compress(codec, TEXT[:3000] + NOISE[:300])
    whole = decompress(codec, compressed)
    for size in range(1, len(compressed)):
        try:
            content = decompress(codec, compressed[:size])
        except DecodeError:
            continue
        # xerial has no end mark: a cut between two blocks is only found by the records inside
        assert codec is Compression.SNAPPY
        assert len(content) < len(whole)


@given(st.sampled_from(CODECS), st.binary(max_size=200))
def test_random_data_is_decoded_or_a_decode_error(codec: Compression, data: bytes) -> None:
    with contextlib.suppress(DecodeError):
        assert len(decompress(codec, data, 1 << 20)) <= 1 << 20


@given(st.sampled_from(REAL_CODECS), st.integers(0, 400), st.integers(1, 255))
def test_flipped_bytes_are_decoded_or_a_decode_error(codec: Compression, position: int, flip: int) -> None:
    damaged = bytearray(compress(codec, TEXT[:5000]))
    damaged[position % len(damaged)] ^= flip
    with contextlib.suppress(DecodeError):
        assert len(decompress(codec, damaged, 1 << 20)) <= 1 << 20


def test_unknown_codecs_are_refused() -> None:
    with pytest.raises(DecodeError, match="codec 5"):
        decompress(5, b"")
    with pytest.raises(ValueError, match="codec 7"):
        compress(7, b"")
    with pytest.raises(ValueError, match="known: none, gzip"):
        Compression.by_name("brotli")
    assert Compression.by_name(None) is Compression.NONE
    assert Compression.by_name("lz4") is Compression.LZ4
