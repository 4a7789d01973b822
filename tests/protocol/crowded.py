"""Valid requests of maximal cost: one array full of the smallest elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anabranch.protocol.wire import Kind, WireField, fields_of

Path = tuple[WireField, ...]
_SMALLEST = {Kind.TEXT: "", Kind.BYTES: b"", Kind.RECORDS: b"", Kind.UUID: bytes(16), Kind.BOOLEAN: False}


def arrays_of(message: type[Any], version: int, above: Path = ()) -> Iterator[Path]:
    """The fields that lead to each array of a message."""
    for field in fields_of(message):
        if field.exists(version):
            if field.is_array:
                yield (*above, field)
            if field.struct is not None:
                yield from arrays_of(field.struct, version, (*above, field))


def smallest(message: type[Any], version: int) -> Any:
    """A message of as few bytes as the version allows."""
    return message(**{field.name: _smallest_value(field, version) for field in fields_of(message)})


def crowded(message: type[Any], version: int, path: Path, count: int) -> Any:
    """The smallest message in which this array has so many elements, no two of them alike where they can differ."""
    whole = smallest(message, version)
    field, below = path[0], path[1:]
    if below:
        assert field.struct is not None
        inside = crowded(field.struct, version, below, count)
        setattr(whole, field.name, [inside] if field.is_array else inside)
    else:
        setattr(whole, field.name, [_element(field, version, number) for number in range(count)])
    return whole


def _smallest_value(field: WireField, version: int) -> Any:
    if not field.exists(version):
        return field.absent_value()
    if field.may_be_null(version):
        return None
    if field.is_array:
        return []
    if field.struct is not None:
        return smallest(field.struct, version)
    assert field.kind is not None
    return _SMALLEST.get(field.kind, 0)


def _element(field: WireField, version: int, number: int) -> Any:
    if field.struct is None:
        return _nth(field.kind, number)
    element = smallest(field.struct, version)
    for inner in fields_of(field.struct):
        if inner.exists(version) and not inner.is_array and inner.kind in (Kind.TEXT, Kind.INT32):
            setattr(element, inner.name, _nth(inner.kind, number))
            break
    return element


def _nth(kind: Kind | None, number: int) -> Any:
    assert kind is not None
    return f"t{number}" if kind is Kind.TEXT else number if kind is Kind.INT32 else _SMALLEST.get(kind, 0)
