"""The codecs of record batches: none, gzip, snappy, lz4, zstd, always with a limit on the output.

The output is readable for Kafka's Java client: xerial framing for snappy, lz4 frames of independent 64 KiB blocks (its
reader refuses dependent ones, which is why the frame is put together here), and one stream each for gzip and zstd. Read
is more: raw snappy blocks, dependent lz4 blocks, several gzip members or zstd frames in a row.

Bytes that do not decompress, or would decompress to more than the limit, are a DecodeError; nothing beyond the limit is
ever allocated. The frame headers of lz4 and zstd bound their content, so that honest batches take the fast way. Only
this module imports the codecs.
"""

from __future__ import annotations

import enum
import mmap
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

from anabranch.protocol.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Buffer = bytes | bytearray | memoryview

DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Far above any batch in use (1 MiB by default, 100 MiB per request), far below a node's memory."""


class TooMuchError(DecodeError):
    """The data would decompress to more than the limit."""


class Compression(enum.IntEnum):
    """The codec ids in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def by_name(cls, name: str | None) -> Compression:
        """Return the codec for a `compression.type`. Raises ValueError."""
        try:
            return cls[(name or "none").upper()]
        except KeyError:
            raise ValueError(f"unknown compression {name!r}; known: none, gzip, snappy, lz4, zstd") from None


def load_codecs() -> Any:
    """Import the codec library, which clients without compressed batches do not need."""
    import cramjam

    return cramjam


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress a batch's records with a codec; levels and defaults are Kafka's (KIP-390)."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return _gzip(data, _GZIP_LEVEL if level is None else level)
        case Compression.SNAPPY:
            return _snappy(data)
        case Compression.LZ4:
            return _lz4(data, _LZ4_LEVEL if level is None else level)
        case Compression.ZSTD:
            return bytes(load_codecs().zstd.compress(data, level=_ZSTD_LEVEL if level is None else level))
    raise ValueError(f"unknown compression codec {codec}")


def decompress(codec: int, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompress a batch's records. Raises DecodeError."""
    return bytes(decompress_view(codec, data, limit_bytes))


def decompress_view(codec: int, data: Buffer, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Decompress without copying the result: copying megabytes would block the other threads. Raises DecodeError."""
    match codec:
        case Compression.NONE:
            content = data
        case Compression.GZIP:
            content = _gunzip(data, limit_bytes)
        case Compression.SNAPPY:
            content = _unsnappy(data, limit_bytes)
        case Compression.LZ4:
            library: Any = load_codecs().lz4
            bound = _lz4_content_max(data)
            content = _decompress_bounded(library.decompress, library.decompress_into, data, bound, limit_bytes)
        case Compression.ZSTD:
            library = load_codecs().zstd
            bound = _zstd_content_max(data)
            if bound > limit_bytes and _zstd_declared(data) > limit_bytes:
                raise _too_much(limit_bytes)
            content = _decompress_bounded(library.decompress, library.decompress_into, data, bound, limit_bytes)
        case _:
            raise DecodeError(f"unknown compression codec {codec}")
    if len(content) > limit_bytes:
        raise _too_much(limit_bytes)
    return content


def content_max(codec: int, data: Buffer) -> int:
    """Return an upper bound of the decompressed size, from headers of frames and blocks. Raises DecodeError."""
    match codec:
        case Compression.GZIP:
            return len(data) * _DEFLATE_RATIO_MAX
        case Compression.SNAPPY:
            return sum(map(_snappy_block_bytes, _snappy_blocks(data)))
        case Compression.LZ4:
            return _lz4_content_max(data)
        case Compression.ZSTD:
            return _zstd_content_max(data)
    return len(data)


def _too_much(limit_bytes: int) -> DecodeError:
    return TooMuchError(f"records decompress to more than {limit_bytes} bytes")


def _decompress_bounded(
    plain: Callable[..., Any], into: Callable[..., int], data: Buffer, content_max: int, limit_bytes: int
) -> Buffer:
    """Decompress with the frame's own bound if that is within the limit, else into a buffer of the limit's size."""
    error = load_codecs().DecompressionError
    try:
        if content_max <= limit_bytes:
            return memoryview(plain(data))
        # Not a bytearray: filling 64 MB with zeros would block the other threads for 50 ms.
        buffer = mmap.mmap(-1, limit_bytes)
        return memoryview(buffer)[: into(data, buffer)]
    except error as reason:
        if "whole buffer" in str(reason):
            raise _too_much(limit_bytes) from None
        raise DecodeError(f"records do not decompress: {reason}") from None


# ---------------------------------------------------------------------------------------------------------------- gzip

_GZIP_WINDOW: Final = 31  # the largest window, in gzip's own framing
_GZIP_LEVEL: Final = 6
_DEFLATE_RATIO_MAX: Final = 1032


def _gzip(data: Buffer, level: int) -> bytes:
    packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    return packer.compress(data) + packer.flush()


def _gunzip(data: Buffer, limit_bytes: int) -> bytes:
    members: list[bytes] = []
    room = limit_bytes
    rest: Buffer = data
    while rest:
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        try:
            content = unpacker.decompress(rest, room + 1)  # one byte above the limit tells "full" from "too much"
        except zlib.error as reason:
            raise DecodeError(f"records do not decompress: {reason}") from None
        if len(content) > room:
            raise _too_much(limit_bytes)
        if not unpacker.eof:
            raise DecodeError("records do not decompress: the gzip stream is cut off")
        members.append(content)
        room -= len(content)
        rest = unpacker.unused_data
    return members[0] if len(members) == 1 else b"".join(members)


# -------------------------------------------------------------------------------------------------------------- snappy

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS: Final = struct.pack(">ii", 1, 1)
_XERIAL_HEADER_BYTES: Final = len(_XERIAL_MAGIC) + len(_XERIAL_VERSIONS)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_XERIAL_LENGTH: Final = struct.Struct(">i")


def _snappy(data: Buffer) -> bytes:
    library = load_codecs().snappy
    view = memoryview(data)
    parts = [_XERIAL_MAGIC, _XERIAL_VERSIONS]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(library.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_XERIAL_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _unsnappy(data: Buffer, limit_bytes: int) -> bytes:
    decompress_raw = load_codecs().snappy.decompress_raw
    blocks: list[bytes] = []
    room = limit_bytes
    for block in _snappy_blocks(data):
        room -= _snappy_block_bytes(block)
        if room < 0:
            raise _too_much(limit_bytes)
        try:
            blocks.append(bytes(decompress_raw(block)))
        except load_codecs().DecompressionError as reason:
            raise DecodeError(f"records do not decompress: {reason}") from None
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _snappy_blocks(data: Buffer) -> Iterator[memoryview]:
    """Yield the blocks of xerial framing, or the one block without framing."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield view
        return
    position = _XERIAL_HEADER_BYTES
    while position < len(view):
        start = position + _XERIAL_LENGTH.size
        if start > len(view):
            raise DecodeError("a snappy block length is cut off", buffer=view, position=position)
        (size,) = _XERIAL_LENGTH.unpack_from(view, position)
        if size < 0 or start + size > len(view):
            raise DecodeError(f"a snappy block of {size} bytes does not fit", buffer=view, position=position)
        yield view[start : start + size]
        position = start + size


def _snappy_block_bytes(block: memoryview) -> int:
    library = load_codecs()
    try:
        size: int = library.snappy.decompress_raw_len(block)
    except library.DecompressionError as reason:
        raise DecodeError(f"records do not decompress: {reason}") from None
    return size


# ----------------------------------------------------------------------------------------------------------------- lz4

_LZ4_MAGIC: Final = 0x184D2204
_LZ4_BLOCK_BYTES: Final = 64 * 1024
_LZ4_LEVEL: Final = 9
_LZ4_FRAME_BYTES: Final = 7  # magic, two bytes of flags, their checksum
# magic, FLG = version 1 with independent blocks, BD = 64 KiB blocks, and the checksum byte that belongs to these two
_LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")
_LZ4_END: Final = bytes(4)
_LZ4_UNCOMPRESSED: Final = 0x80000000
_U32: Final = struct.Struct("<I")


def _lz4(data: Buffer, level: int) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        content = view[start : start + _LZ4_BLOCK_BYTES]
        block = _lz4_block(content, level)
        if len(block) < len(content):
            parts.append(_U32.pack(len(block)))
            parts.append(block)
        else:
            parts.append(_U32.pack(len(content) | _LZ4_UNCOMPRESSED))
            parts.append(bytes(content))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _lz4_block(content: memoryview, level: int) -> bytes:
    library = load_codecs().lz4
    if level == _LZ4_LEVEL:  # this is Java's name for its fast compressor
        return bytes(library.compress_block(content, store_size=False))
    # This library has levels only for whole frames: so little content is one block, which is extracted from its frame.
    frame = bytes(library.compress(content, level=level))
    position = _LZ4_FRAME_BYTES + _lz4_optional_bytes(frame[4])
    (size,) = _U32.unpack_from(frame, position)
    return bytes(content) if size & _LZ4_UNCOMPRESSED else frame[position + 4 : position + 4 + size]


def _lz4_optional_bytes(flags: int) -> int:
    """Return the size of the optional content size and dictionary id in a frame's header."""
    return (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)


def _lz4_content_max(data: Buffer) -> int:
    """Return an upper bound of the content of lz4 frames, from their block headers alone."""
    total = position = 0
    try:
        while position < len(data):
            (magic,) = _U32.unpack_from(data, position)
            if magic != _LZ4_MAGIC:
                raise DecodeError(f"not an lz4 frame: {magic:#010x}", buffer=data, position=position)
            flags, block_code = data[position + 4], data[position + 5] >> 4 & 7
            block_bytes = 1 << (8 + 2 * block_code)
            position += _LZ4_FRAME_BYTES + _lz4_optional_bytes(flags)
            while True:
                (size,) = _U32.unpack_from(data, position)
                position += 4
                if size == 0:
                    break
                position += (size & ~_LZ4_UNCOMPRESSED) + (4 if flags & 0x10 else 0)
                total += block_bytes
            position += 4 if flags & 0x04 else 0
    except (struct.error, IndexError):
        raise DecodeError("records do not decompress: the lz4 frame is cut off") from None
    return total


def lz4_with_checksum(frame: Buffer) -> bytes:
    """Return the frame with a correct header checksum: that of message set v0 is wrong (KAFKA-3160)."""
    size = _lz4_header_bytes(frame)
    return bytes(frame[: size - 1]) + bytes((_xxh32(bytes(frame[4 : size - 1])) >> 8 & 0xFF,)) + bytes(frame[size:])


def lz4_with_broken_checksum(frame: Buffer) -> bytes:
    """Return the frame for readers of message set v0: the checksum covers the magic number too."""
    size = _lz4_header_bytes(frame)
    return bytes(frame[: size - 1]) + bytes((_xxh32(bytes(frame[: size - 1])) >> 8 & 0xFF,)) + bytes(frame[size:])


def _lz4_header_bytes(frame: Buffer) -> int:
    if len(frame) < _LZ4_FRAME_BYTES or len(frame) < (size := _LZ4_FRAME_BYTES + _lz4_optional_bytes(frame[4])):
        raise DecodeError("records do not decompress: the lz4 frame is cut off")
    return size


def _xxh32(data: bytes) -> int:
    """XXH32 with seed 0, as far as lz4 headers need it: up to 19 bytes, so there is at most one stripe of 16."""
    prime1, prime2, prime3, prime4, prime5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF

    def rotate(number: int, by: int) -> int:
        return (number << by | number >> (32 - by)) & mask

    position = 0
    total = prime5
    if len(data) >= 16:
        lanes = (prime1 + prime2, prime2, 0, -prime1)
        mixed = (
            rotate(lane + word * prime2 & mask, 13) * prime1 & mask
            for lane, word in zip(lanes, struct.unpack_from("<4I", data), strict=True)
        )
        total = sum(rotate(lane, by) for lane, by in zip(mixed, (1, 7, 12, 18), strict=True))
        position = 16
    total = total + len(data) & mask
    while position + 4 <= len(data):
        (word,) = _U32.unpack_from(data, position)
        total = rotate(total + word * prime3 & mask, 17) * prime4 & mask
        position += 4
    for byte in data[position:]:
        total = rotate(total + byte * prime5 & mask, 11) * prime1 & mask
    total = (total ^ total >> 15) * prime2 & mask
    total = (total ^ total >> 13) * prime3 & mask
    return total ^ total >> 16


# ---------------------------------------------------------------------------------------------------------------- zstd

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024
_ZSTD_LEVEL: Final = 3


def _zstd_content_max(data: Buffer) -> int:
    """Return an upper bound of the content of zstd frames, from their block headers alone (RFC 8878, 3.1)."""
    total = position = 0
    try:
        while position < len(data):
            (magic,) = _U32.unpack_from(data, position)
            if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
                (size,) = _U32.unpack_from(data, position + 4)
                position += 8 + size
                continue
            if magic != _ZSTD_MAGIC:
                raise DecodeError(f"not a zstd frame: {magic:#010x}", buffer=data, position=position)
            descriptor = data[position + 4]
            single_segment = descriptor >> 5 & 1
            content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
            position += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + content_size_bytes
            last = False
            while not last:
                block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
                last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
                compressed = kind == 2
                total += _ZSTD_BLOCK_BYTES_MAX if compressed else size
                position += 3 + (1 if kind == 1 else size)
            position += 4 if descriptor & 0x04 else 0
    except (struct.error, IndexError):
        raise DecodeError("records do not decompress: the zstd frame is cut off") from None
    return total


def _zstd_declared(data: Buffer) -> int:
    """Return the declared content size of the first frame, 0 without one; a decoder would allocate it."""
    if _U32.unpack_from(data)[0] != _ZSTD_MAGIC:
        return 0
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    return int.from_bytes(data[start : start + size_bytes], "little") + (256 if size_bytes == 2 else 0)
