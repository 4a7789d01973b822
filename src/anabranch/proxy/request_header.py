"""Reads the header of a request: all that a proxy needs to let it pass. Pure.

Header v1 and v2 begin alike (API key, version, correlation id, client id as a classic string), so headers of unknown
APIs can be read, too. For a Produce, acks is read as well: it decides whether a response follows.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from anabranch.protocol.connection import ENTRIES_MAX
from anabranch.protocol.decoder_source import skip_tags
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.varint import Buffer, decode_uvarint

PRODUCE: Final = 0
FLEXIBLE_PRODUCE: Final = 9
TRANSACTIONAL_PRODUCE: Final = 3
WITHOUT_CLIENT_ID: Final = (7, 0)
"""ControlledShutdown v0."""
LEAST_BYTES: Final = 8
HIGHEST_KEY: Final = 4096
HIGHEST_VERSION: Final = 64
"""Real API keys and versions are far lower: a higher value means a SASL token, or no Kafka request."""

_read_head = struct.Struct(">hhi").unpack_from
_read_int16 = struct.Struct(">h").unpack_from


class RequestHeader(NamedTuple):
    """The header of a request."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    answered: bool
    """Whether a response follows: not for a Produce with acks=0."""


def read_request_header(buffer: Buffer, at: int, end: int) -> RequestHeader | None:
    """The header of the message from `at` to `end`, of which the buffer may hold only the beginning.

    Returns None if more bytes are needed. Raises DecodeError.
    """
    if end - at < LEAST_BYTES:
        raise DecodeError("a request shorter than its header", buffer=buffer, position=at)
    here = min(end, len(buffer))
    if here - at < LEAST_BYTES + 2 and here < end:
        return None
    key, version, correlation_id = _read_head(buffer, at)
    if (key, version) == WITHOUT_CLIENT_ID or end - at < LEAST_BYTES + 2:
        return RequestHeader(key, version, correlation_id, None, True)
    length: int = _read_int16(buffer, at + LEAST_BYTES)[0]
    position = at + LEAST_BYTES + 2
    client_id = None
    if length >= 0:
        position += length
        if position > end:
            raise DecodeError(f"client id of {length} bytes in a request of {end - at}", buffer=buffer, position=at)
        if position > here:
            return None
        client_id = bytes(buffer[position - length : position]).decode(errors="replace")
    if key != PRODUCE:
        return RequestHeader(key, version, correlation_id, client_id, True)
    try:
        acks = _acks(buffer, position, version, here)
    except (IndexError, struct.error, DecodeError) as error:
        if here < end:
            return None
        raise DecodeError("a truncated Produce", buffer=buffer, position=at) from error
    return RequestHeader(key, version, correlation_id, client_id, acks != 0)


def is_plausible(buffer: Buffer, at: int, end: int) -> bool:
    """Whether a frame can be a request, where it could also be a bare SASL token."""
    if end - at < LEAST_BYTES or len(buffer) - at < LEAST_BYTES:
        return False
    key, version, _ = _read_head(buffer, at)
    return bool(0 <= key < HIGHEST_KEY and 0 <= version < HIGHEST_VERSION)


def _acks(buffer: Buffer, position: int, version: int, here: int) -> int:
    if version >= FLEXIBLE_PRODUCE:
        whole = bytes(buffer[position:here])
        position = skip_tags(whole, 0, ENTRIES_MAX)[0]
        length, position = decode_uvarint(whole, position)
        position += max(0, length - 1)
        return int(_read_int16(whole, position)[0])
    if version >= TRANSACTIONAL_PRODUCE:
        position += 2 + max(0, _read_int16(buffer, position)[0])
    if position + 2 > here:
        raise IndexError
    return int(_read_int16(buffer, position)[0])
