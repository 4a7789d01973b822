"""Removes from ApiVersions responses what a proxy cannot serve. Pure.

The proxy must decode responses that name brokers, to replace their addresses. Of those APIs, clients see only the
versions known here. All other APIs stay as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from anabranch.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from anabranch.protocol.codec import encode
from anabranch.protocol.connection import API_VERSIONS, FIRST_FLEXIBLE_API_VERSIONS
from anabranch.protocol.decoder_source import skip_tags
from anabranch.protocol.errors import DecodeError, ErrorCode
from anabranch.protocol.registry import BY_KEY
from anabranch.protocol.varint import decode_uvarint, encode_uvarint
from anabranch.proxy.addresses import NAMING

LAST: Final[Mapping[int, int]] = {
    **{key: BY_KEY[key].last_version if key in BY_KEY else -1 for key in NAMING},
    API_VERSIONS: BY_KEY[API_VERSIONS].last_version,
}
"""API key -> the newest version that clients see; -1: none."""

_entry = struct.Struct(">hhh")
_int16 = struct.Struct(">h")
_int32 = struct.Struct(">i")


def cap_versions(frame: bytes, version: int) -> tuple[bytes, dict[int, tuple[int, int]]]:
    """Cap the versions in an ApiVersions response (without its length); returns it with the version ranges.

    Raises DecodeError.
    """
    try:
        if _int16.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
        flexible = version >= FIRST_FLEXIBLE_API_VERSIONS
        if flexible:
            count, position = decode_uvarint(frame, 6)
            count -= 1
        else:
            count, position = _int32.unpack_from(frame, 6)[0], 10
        kept, ranges = [], {}
        for _ in range(count):
            start = position
            key, first, last = _entry.unpack_from(frame, position)
            position += _entry.size
            if flexible:
                position = skip_tags(frame, position)[0]
            last = min(last, LAST.get(key, last))
            if first <= last:
                kept.append(_entry.pack(key, first, last) + frame[start + _entry.size : position])
                ranges[key] = (first, last)
    except (IndexError, struct.error) as error:
        raise DecodeError("ends too early", path=f"ApiVersions v{version}", buffer=frame) from error
    head = encode_uvarint(len(kept) + 1) if flexible else _int32.pack(len(kept))
    return b"".join([frame[:6], head, *kept, frame[position:]]), ranges


def unsupported_version_response(correlation_id: int) -> bytes:
    """The response to an ApiVersions version that is unknown here: the supported versions (KIP-511)."""
    own = ApiVersion(api_key=API_VERSIONS, min_version=0, max_version=LAST[API_VERSIONS])
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    return _int32.pack(correlation_id) + encode(answer, 0)
