"""Serdes: convert values to bytes and back, at a topology's topics and in its stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from anabranch.protocol.suggestion import suggest_arguments


class Undecodable(Exception):
    """A serde cannot decode the value of a record; the cause has the reason."""


@suggest_arguments
@dataclass(frozen=True, slots=True)
class Serde:
    """A serializer and its inverse. They never get None, which is a deletion."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _same(value: bytes) -> bytes:
    return value


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


BYTES: Final = Serde(_same, _same)
"""Values that are bytes."""
TEXT: Final = Serde(str.encode, bytes.decode)
"""Text as UTF-8."""
JSON: Final = Serde(_to_json, json.loads)
"""JSON values, without spaces."""
