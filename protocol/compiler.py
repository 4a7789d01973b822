"""Compiles the generated codecs, one (class, version) at a time, at first use.

`decoder_source` and `encoder_source` generate ordinary Python: it is registered with `linecache`, so that tracebacks,
debuggers and profilers show its lines, and `python -m anabranch.protocol source Fetch 12` prints it.

When decoding fails, `explain` finds the field without a second decoder, from the failed line, the loop counters in its
frame and the widths of a fused read. Successful decoding pays nothing for that.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from anabranch.protocol.decoder_source import has_records, write_decoder
from anabranch.protocol.emitter import Emitter, Place, join_path
from anabranch.protocol.encoder_source import write_encoder
from anabranch.protocol.errors import DecodeError
from anabranch.protocol.registry import BY_NAME
from anabranch.protocol.values import value
from anabranch.protocol.varint import Buffer

Decoder = Callable[[bytes | bytearray, int, int], tuple[Any, int]]
Encoder = Callable[[Any], Any]
"""Returns bytes, or a list of chunks if `chunked`."""

DECODE_ERRORS: Final = (struct.error, IndexError, UnicodeDecodeError, DecodeError)
"""The exceptions of generated decoders for invalid bytes."""

_places: dict[str, dict[int, Place]] = {}
"""File name -> the field of each line of a compiled decoder, for `explain`."""


@value
class CompiledEncoder:
    """The encoder of one message version."""

    encode: Encoder
    chunked: bool


def is_flexible(message: type[Any], version: int) -> bool:
    """Whether this version uses compact encodings and tagged fields.

    For APIs the registry decides. Other schemas (records of internal topics) may set a class variable `flexible_from`;
    without it they never do.
    """
    api = BY_NAME.get(message.__name__.removesuffix("Request").removesuffix("Response"))
    if api is None:
        since: int | None = getattr(message, "flexible_from", None)
        return since is not None and version >= since
    if not 0 <= version <= api.last_version:
        raise ValueError(f"{api.name} has versions 0 to {api.last_version}, not {version}")
    return api.flexible(version)


def compile_decoder(message: type[Any], version: int) -> Decoder:
    """Generate and compile the decoder of one version."""
    emitter = write_decoder(message, version, is_flexible(message, version))
    name = f"<decode {message.__qualname__} v{version}>"
    _places[name] = emitter.places
    decoder: Decoder = _load(emitter, name)["decode"]
    return decoder


def compile_encoder(message: type[Any], version: int) -> CompiledEncoder:
    """Generate and compile the encoder of one version."""
    emitter = write_encoder(message, version, is_flexible(message, version))
    encoder: Encoder = _load(emitter, f"<encode {message.__qualname__} v{version}>")["encode"]
    return CompiledEncoder(encoder, has_records(message, version))


def source_of(message: type[Any], version: int) -> str:
    """Return the source of both generated functions."""
    flexible = is_flexible(message, version)
    return (
        write_decoder(message, version, flexible).source() + "\n\n" + write_encoder(message, version, flexible).source()
    )


def _load(emitter: Emitter, name: str) -> dict[str, Any]:
    source = emitter.source()
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), emitter.namespace)
    return emitter.namespace


def explain(error: Exception, buffer: Buffer) -> DecodeError:
    """Return the `DecodeError` for an exception of a generated decoder, with the field, the byte and the reason."""
    frame, line = _generated_frame(error)
    if frame is None:
        return error if isinstance(error, DecodeError) else DecodeError(str(error), buffer=buffer)
    place = _places[frame.f_code.co_filename][line]
    position: int = frame.f_locals["pos"]
    path = place.path
    reason = "ends too early"
    if place.widths and isinstance(error, struct.error | IndexError):
        path, position = _first_missing(place, position, len(buffer))
    elif isinstance(error, UnicodeDecodeError):
        reason = f"not UTF-8: {error.reason}"
    elif isinstance(error, DecodeError):
        reason = error.reason
    return DecodeError(reason, path=path.format_map(frame.f_locals), buffer=buffer, position=position)


def _generated_frame(error: Exception) -> tuple[FrameType | None, int]:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in _places:
            return trace.tb_frame, trace.tb_lineno
        trace = trace.tb_next
    return None, 0


def _first_missing(place: Place, position: int, size: int) -> tuple[str, int]:
    """Return the value of a fused read in which the buffer ends."""
    for path, width in place.widths:
        if position + width > size:
            return path, position
        position += width
    return join_path(place.path, "?"), position
