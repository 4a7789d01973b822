"""The encoded bytes of an exchange, without messages that may hold a secret. Pure."""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING, Final

from anabranch.protocol.connection import ClientConnection, encode_response
from anabranch.protocol.wire import fields_of

if TYPE_CHECKING:
    from typing import Any

    from anabranch.protocol.codec import DecodedRequest

CORRELATION_ID_AT: Final = 8


@dataclasses.dataclass(frozen=True, slots=True)
class Frames:
    """The bytes of an exchange; empty for a missing response."""

    request_bytes: bytes
    answered: bytes = b""


def frames_of(request: DecodedRequest) -> Frames | None:
    """The bytes of a request; None if it may hold a secret."""
    if _may_hold_secrets(type(request.body)):
        return None
    if (unread := getattr(request.body, "frame", None)) is not None:
        return Frames(_frame(unread))
    _, chunks = ClientConnection(request.client_id).request(request.body, request.version)
    request_bytes = bytearray().join(chunks)
    struct.pack_into(">i", request_bytes, CORRELATION_ID_AT, request.correlation_id)
    return Frames(bytes(request_bytes))


def add_response(frames: Frames, request: DecodedRequest, response: Any) -> Frames | None:
    """Add the bytes of the response; return None if it may hold a secret."""
    if _may_hold_secrets(type(response)):
        return None
    if (unread := getattr(response, "frame", None)) is not None:
        return dataclasses.replace(frames, answered=_frame(unread))
    return dataclasses.replace(frames, answered=b"".join(encode_response(request, response)))


def _frame(frame: bytes) -> bytes:
    """Add the length, for a message that the proxy could not decode."""
    return struct.pack(">i", len(frame)) + frame


def _may_hold_secrets(message: type[Any]) -> bool:
    return any(
        one.secret or (one.struct is not None and _may_hold_secrets(one.struct)) for one in fields_of(message)
    ) or message.__name__.startswith("SaslAuthenticate")
