"""Parses the JSON body of a control request, and refuses values that no handler can use. Pure.

`json.loads` accepts more than JSON: NaN, Infinity, integers of any length, and text that UTF-8 cannot encode. It raises
RecursionError for deep nesting. Without these checks, each handler would have to handle them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NoReturn

from anabranch.protocol.suggestion import suggest

DEPTH_MAX: Final = 32
INT_MAX: Final = 2**63 - 1
"""The largest integer of Kafka's protocol."""
INT32_MAX: Final = 2**31 - 1
"""The largest partition number and id."""
SHOWN_CHARS: Final = 40
KINDS: Final[Mapping[str, str]] = {
    "string": "a string",
    "integer": "a number of 32 bits",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def parse_object(content: bytes) -> dict[str, Any]:
    """Parse a JSON object; an empty body is an empty object. Raises ValueError with the cause."""
    if not content:
        return {}
    try:
        body = json.loads(content, parse_int=_int, parse_float=_float, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"the body is nested deeper than {DEPTH_MAX} levels") from None
    if not isinstance(body, dict):
        raise ValueError("the body is a JSON object")
    _check(body)
    return body


def check_fields(body: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]], what: str = "the body") -> None:
    """Check the fields of a body against their schemas. ValueError names the first unknown field or mismatch."""
    check_names(body, fields, what, "field")
    for name, value in body.items():
        kinds = fields.get(name, {}).get("type")
        if kinds is None:
            continue
        allowed = [kinds] if isinstance(kinds, str) else kinds
        if not any(_is(kind, value) for kind in allowed):
            raise ValueError(f"{name} is {' or '.join(KINDS[kind] for kind in allowed)}, not {shorten(value)}")


def check_names(given: Iterable[str], known: Collection[str], what: str, kind: str) -> None:
    """Raise ValueError for a name that is not known, and suggest another one."""
    for name in given:
        if name not in known:
            instead = suggest(name, known) if known else f"it has no {kind}s"
            raise ValueError(f"{what} has no {shorten(name)}; {instead}")


def shorten(value: object) -> str:
    """Shorten a value for a message."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def _is(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and -INT32_MAX - 1 <= value <= INT32_MAX
        case "number":
            return isinstance(value, int | float)
        case "array":
            return isinstance(value, list)
        case "null":
            return value is None
    return kind == "object" and isinstance(value, dict)


def _int(text: str) -> int:
    found = int(text) if len(text) <= len(str(INT_MAX)) + 1 else INT_MAX + 1
    if abs(found) > INT_MAX:
        raise ValueError(f"a number has at most 64 bits, not {text[:SHOWN_CHARS]}")
    return found


def _float(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"a number is finite, not {text[:SHOWN_CHARS]}")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"JSON has no {text}")


def _check(body: object) -> None:
    """Check nesting and text level by level, without recursion."""
    level = [body]
    for _ in range(DEPTH_MAX):
        below: list[object] = []
        for one in level:
            if isinstance(one, dict):
                below += one
                below += one.values()
            elif isinstance(one, list):
                below += one
            elif isinstance(one, str) and not one.isascii():
                one.encode()  # a lone surrogate raises UnicodeEncodeError, a ValueError
        if not below:
            return
        level = below
    raise ValueError(f"the body is nested deeper than {DEPTH_MAX} levels")
