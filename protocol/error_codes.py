"""Finds the error codes of a response, from the fields of its declaration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from anabranch.protocol.wire import fields_of

ERROR_CODE: Final = "error_code"
Ways = tuple[tuple[str, type[Any] | None, bool], ...]
_KNOWN: Final[dict[type[Any], Ways]] = {}


def error_codes(message: Any, kind: type[Any]) -> Iterator[int]:
    """Yield every error code of a response, at every level; 0 is NONE."""
    for name, nested, many in _ways(kind):
        value = getattr(message, name)
        if nested is None:
            yield value
        elif value is not None:
            for one in value if many else (value,):
                yield from error_codes(one, nested)


def _ways(kind: type[Any]) -> Ways:
    """Return the fields of a message that hold an error code, or messages with one."""
    known = _KNOWN.get(kind)
    if known is None:
        found: list[tuple[str, type[Any] | None, bool]] = []
        for field in fields_of(kind):
            if field.name == ERROR_CODE:
                found.append((field.name, None, False))
            elif field.struct is not None and _ways(field.struct):
                found.append((field.name, field.struct, field.is_array))
        known = _KNOWN[kind] = tuple(found)
    return known
