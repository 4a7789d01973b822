"""Variable-length integers: seven bits a byte, low ones first, the high bit says "more".

Unsigned ones carry lengths, counts and tags of the flexible versions; signed ones (zig-zag) only occur inside records.
The generated codecs read and write one-byte values themselves and come here for the rest.

Every decoder takes a buffer and a position and returns the value and the next position. A value that does not fit its
width, or an end in the middle of one, is a `DecodeError`.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.errors import DecodeError

Buffer = bytes | bytearray | memoryview

SMALL_UVARINTS: Final = tuple(bytes((value,)) for value in range(128))
"""The encodings of 0 to 127: nearly all lengths, counts and tags."""


def encode_uvarint(value: int) -> bytes:
    """Encode an unsigned varint; 32 bits at most."""
    if 0 <= value < 128:
        return SMALL_UVARINTS[value]
    if 0 <= value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    if not 0 <= value < 1 << 32:
        raise ValueError(f"{value} is not an unsigned 32-bit value")
    out = bytearray()
    append_unsigned(out, value)
    return bytes(out)


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Decode an unsigned varint of at most 32 bits. Nearly all have one or two bytes here."""
    if position + 1 < len(buffer):
        first, second = buffer[position], buffer[position + 1]
        if first < 128:
            return first, position + 1
        if second < 128:
            return first & 127 | second << 7, position + 2
    return _decode_unsigned(buffer, position, 32)


def append_unsigned(out: bytearray, value: int) -> None:
    """Append the seven-bit groups of a value that is not negative."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def append_varint(out: bytearray, value: int) -> None:
    """Append a signed (zig-zag) varint or varlong: both look the same on the wire."""
    append_unsigned(out, value << 1 if value >= 0 else ~value << 1 | 1)


def encode_varint(value: int) -> bytes:
    """Encode a signed (zig-zag) varint or varlong."""
    out = bytearray()
    append_varint(out, value)
    return bytes(out)


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Decode a signed (zig-zag) varint of 32 bits."""
    value, position = _decode_unsigned(buffer, position, 32)
    return value >> 1 ^ -(value & 1), position


def decode_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Decode a signed (zig-zag) varint of 64 bits."""
    value, position = _decode_unsigned(buffer, position, 64)
    return value >> 1 ^ -(value & 1), position


def _decode_unsigned(buffer: Buffer, position: int, bits: int) -> tuple[int, int]:
    value = 0
    shift = 0
    start = position
    while shift < bits:
        if not 0 <= position < len(buffer):
            raise DecodeError("ends inside a varint", buffer=buffer, position=start)
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> bits:
                break
            return value, position
        shift += 7
    raise DecodeError(f"varint of more than {bits} bits", buffer=buffer, position=start)
