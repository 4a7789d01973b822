"""Serdes: convert values to bytes and back, at a topology's topics and in its stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from anabranch.protocol.suggestion import suggest_arguments

_BYTES: Final = frozenset({bytes, type(None)})
SHOWN_MAX: Final = 100
"""How much of a key or value an error shows, in characters."""


class Undecodable(Exception):
    """A serde cannot decode the value of a record; the cause has the reason."""


@suggest_arguments
@dataclass(frozen=True, slots=True)
class Serde:
    """A serializer and its inverse. They never get None, which is a deletion."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def check_bytes(key: Any, value: Any, what: str, name: str, *, keyed: bool = False) -> None:
    """Raise TypeError if a key or a value is not bytes or None, or a key is missing that is needed (`keyed`).

    Nothing else can be sent or stored, so the record that is processed is at fault, not the commit after it.
    """
    if key.__class__ in _BYTES and value.__class__ in _BYTES and not (keyed and key is None):
        return
    right_key = key.__class__ is bytes or (key is None and not keyed)
    part, wrong = ("value", value) if right_key else ("key", key)
    text = repr(wrong)
    shown = text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."
    raise TypeError(f"the {what} {name} takes keys and values as bytes, not the {part} {shown}")


def _same(value: bytes) -> bytes:
    return value


_encode_json: Final = json.JSONEncoder(separators=(",", ":")).encode
"""`json.dumps` with separators makes an encoder for each value."""
_decode_json: Final = json.JSONDecoder().decode


def _to_json(value: Any) -> bytes:
    return _encode_json(value).encode()


def _from_json(value: bytes) -> Any:
    """Decode UTF-8 quickly, and other encodings as `json.loads` does."""
    try:
        return _decode_json(value.decode())
    except ValueError:
        return json.loads(value)


BYTES: Final = Serde(_same, _same)
"""Values that are bytes."""
TEXT: Final = Serde(str.encode, bytes.decode)
"""Text as UTF-8."""
JSON: Final = Serde(_to_json, _from_json)
"""JSON values, without spaces."""
