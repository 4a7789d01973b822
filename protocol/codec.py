"""Encodes messages to bytes and decodes them, at a version.

    encode(message, version)             bytes
    encode_chunks(message, version)      the same in pieces: record batches stay the buffers they are
    decode(cls, version, buffer)         (message, where it ended)

Codecs are generated and compiled the first time a version is used (`compiler`). A field that the version lacks is left
out by the encoder and filled with its declared default by the decoder.

Decoded records are memoryviews of the buffer: they keep it alive, and cost nothing. Everything else is a copy. A
memoryview as input is copied whole first, because text decodes a third faster from bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from anabranch.protocol.compiler import (
    DECODE_ERRORS,
    CompiledEncoder,
    Decoder,
    compile_decoder,
    compile_encoder,
    explain,
)
from anabranch.protocol.decoder_source import ENDLESS
from anabranch.protocol.registry import Api
from anabranch.protocol.varint import Buffer

Message = TypeVar("Message")

_decoders: dict[tuple[type[Any], int], Decoder] = {}
_encoders: dict[tuple[type[Any], int], CompiledEncoder] = {}


@dataclass(slots=True)
class DecodedRequest:
    """One decoded request: header fields and body."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    """None only for ApiVersions of an unknown version (KIP-511)."""


def decode(
    cls: type[Message], version: int, buffer: Buffer, position: int = 0, entries: int = ENDLESS
) -> tuple[Message, int]:
    """Decode one message from `position` on; return it and the next position. Raises `DecodeError` with the field's
    path.

    `entries` limits the elements of arrays, at all depths, and of tagged fields.
    """
    decoder = _decoders.get((cls, version)) or _decoder(cls, version)
    if type(buffer) is memoryview:
        buffer = bytes(buffer)
    try:
        return decoder(buffer, position, entries)
    except DECODE_ERRORS as error:
        raise explain(error, buffer) from None


def encode(message: Any, version: int) -> bytes:
    """Encode one message, in one piece."""
    encoder = _encoders.get((message.__class__, version)) or _encoder(message.__class__, version)
    wire = encoder.encode(message)
    return b"".join(wire) if encoder.chunked else wire


def encode_chunks(message: Any, version: int) -> list[Buffer]:
    """Encode one message in pieces to send one after the other; large record batches are not copied."""
    encoder = _encoders.get((message.__class__, version)) or _encoder(message.__class__, version)
    wire = encoder.encode(message)
    return wire if encoder.chunked else [wire]


def _decoder(cls: type[Any], version: int) -> Decoder:
    decoder = _decoders[cls, version] = compile_decoder(cls, version)
    return decoder


def _encoder(cls: type[Any], version: int) -> CompiledEncoder:
    encoder = _encoders[cls, version] = compile_encoder(cls, version)
    return encoder
