"""How values become bytes and come back: what a topology needs at its edges and in its stores."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


class Undecodable(Exception):
    """The value of a record makes no sense to its serde; the cause says why."""


@dataclass(frozen=True, slots=True)
class Serde:
    """A pair of functions that undo each other. None never reaches them: it stands for a deletion."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _same(value: bytes) -> bytes:
    return value


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


BYTES: Final = Serde(_same, _same)
"""Values that are bytes already."""
TEXT: Final = Serde(str.encode, bytes.decode)
"""Text as UTF-8."""
JSON: Final = Serde(_to_json, json.loads)
"""What JSON can say, without spaces."""
