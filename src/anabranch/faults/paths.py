"""Paths to fields of a response: `topics[*].partitions[0].leader_id`. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from anabranch.faults.rewriting import EACH
from anabranch.faults.rule_json import InvalidRule
from anabranch.protocol.suggestion import suggest
from anabranch.protocol.wire import Kind, fields_of

if TYPE_CHECKING:
    from anabranch.protocol.wire import WireField

Path = tuple[tuple[str, int | None], ...]
"""Field names, each with the index of the list element, if it is a list: `EACH` for all."""
STEP: Final = re.compile(r"(\w+)(?:\[(\*|\d+)\])?")
BITS: Final = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
UNSIGNED_BITS: Final = {Kind.UINT16: 16, Kind.UINT32: 32}


def parse(path: str) -> Path:
    """Parse a path. Raises InvalidRule."""
    steps = []
    for step in path.split("."):
        found = STEP.fullmatch(step)
        if found is None:
            raise InvalidRule(f"a path is written as topics[*].partitions[0].leader_id, not {path!r}")
        name, index = found.groups()
        steps.append((name, None if index is None else EACH if index == "*" else int(index)))
    return tuple(steps)


def check(message: type[Any], version: int, path: str, value: object) -> str:
    """Check that a version of a message has this field and can hold the value. Returns the error; empty if none."""
    struct, field = message, None
    steps = parse(path)
    for number, (name, index) in enumerate(steps):
        fields = {one.name: one for one in fields_of(struct) if one.exists(version)}
        field = fields.get(name)
        if field is None:
            return f"{struct.__name__} v{version} has no {name}; {suggest(name, fields)}"
        last = number == len(steps) - 1
        if index is not None and not field.is_array:
            return f"{name} of {struct.__name__} is not a list; leave out [{'*' if index == EACH else index}]"
        if field.is_array and index is None:
            return f"{name} of {struct.__name__} is a list; write {name}[*], or {name}[0]"
        if not last and field.struct is None:
            return f"{name} of {struct.__name__} has no fields"
        if last and field.struct is not None:
            return f"{name} of {struct.__name__} is not one value; name a field of it"
        if field.struct is not None:
            struct = field.struct
    assert field is not None
    return _fits(field, version, value)


def _fits(field: WireField, version: int, value: object) -> str:
    if value is None:
        nullable = field.may_be_null(version) and not field.is_array  # a list may be null, its elements may not
        return "" if nullable else f"{field.name} cannot be null"
    kind = field.kind
    if kind in BITS or kind in UNSIGNED_BITS:
        if isinstance(value, bool) or not isinstance(value, int):
            return f"{field.name} is a whole number, not {value!r}"
        low, high = _range(kind)
        return "" if low <= value <= high else f"{field.name} is {low} to {high}, not {value}"
    if kind is Kind.TEXT:
        return "" if isinstance(value, str) else f"{field.name} is a string, not {value!r}"
    if kind is Kind.BOOLEAN:
        return "" if isinstance(value, bool) else f"{field.name} is true or false, not {value!r}"
    if kind is Kind.FLOAT64:
        return "" if isinstance(value, float) else f"{field.name} is a number, not {value!r}"
    return f"{field.name} holds bytes: a rule can set only numbers, strings and booleans"


def _range(kind: Kind) -> tuple[int, int]:
    if kind in UNSIGNED_BITS:
        return 0, (1 << UNSIGNED_BITS[kind]) - 1
    half = 1 << BITS[kind] - 1
    return -half, half - 1
