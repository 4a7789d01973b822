"""Hypothesis strategies for every declared message, derived from the declarations."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from anabranch.protocol.registry import APIS, api_of
from anabranch.protocol.wire import ZERO_UUID, Kind, WireField, fields_of

MESSAGES = [message for api in APIS for message in (api.request, api.response)]
VERSIONS = [(message, version) for message in MESSAGES for version in range(api_of(message).last_version + 1)]


def layout_versions(message: type[Any]) -> list[int]:
    """The first version of each layout: until the next one, the fields, and so both codecs, are the same."""
    api = api_of(message)
    first: dict[Any, int] = {}
    for version in range(api.last_version + 1):
        first.setdefault((api.flexible(version), _layout(message, version)), version)
    return list(first.values())


def _layout(struct: type[Any] | None, version: int) -> Any:
    fields = () if struct is None else fields_of(struct)
    return tuple(
        (one.name, one.may_be_null(version), _layout(one.struct, version)) for one in fields if one.exists(version)
    )


_INTEGERS = {
    Kind.INT8: (-(2**7), 2**7 - 1),
    Kind.INT16: (-(2**15), 2**15 - 1),
    Kind.UINT16: (0, 2**16 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.UINT32: (0, 2**32 - 1),
    Kind.INT64: (-(2**63), 2**63 - 1),
}
_OTHERS: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOLEAN: st.booleans(),
    Kind.FLOAT64: st.floats(allow_nan=False),
    Kind.UUID: st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16),
    # long enough now and then for two-byte lengths, and for records that are sent as a chunk of their own
    Kind.TEXT: st.text(max_size=4) | st.text(st.sampled_from("aé€𝄞"), min_size=100, max_size=150),
    Kind.BYTES: st.binary(max_size=4) | st.binary(min_size=126, max_size=129),
    Kind.RECORDS: st.binary(max_size=4) | st.integers(120, 5000).map(lambda size: b"record" * (size // 6)),
}

_strategies: dict[type[Any], st.SearchStrategy[Any]] = {}


def values_of(message: type[Any]) -> st.SearchStrategy[Any]:
    """Any value of a message in its last version."""
    if message not in _strategies:
        parts = {field.name: _values_of_field(field) for field in fields_of(message)}
        _strategies[message] = st.builds(message, **parts)
    return _strategies[message]


def _values_of_field(field: WireField) -> st.SearchStrategy[Any]:
    values = values_of(field.struct) if field.struct is not None else _values_of_kind(field.kind)
    if field.is_array:
        small = st.lists(values, max_size=2)
        values = small if field.struct is not None else small | st.lists(values, min_size=7, max_size=10)
    if field.nullable:
        values = st.none() | values
    if field.default is not dataclasses.MISSING:
        values = st.builds(field.absent_value) | values
    return values


def _values_of_kind(kind: Kind | None) -> st.SearchStrategy[Any]:
    assert kind is not None
    if kind in _OTHERS:
        return _OTHERS[kind]
    low, high = _INTEGERS[kind]
    return st.sampled_from([low, -1 if low else 1, 0, high]) | st.integers(low, high)


def as_sent(value: Any, version: int) -> Any:
    """A copy that a version can carry: null only where it may be."""
    value = copy.copy(value)
    for field in fields_of(type(value)):
        item = getattr(value, field.name)
        if item is None and field.exists(version) and not field.may_be_null(version):
            item = [] if field.is_array else "" if field.kind is Kind.TEXT else b""
        setattr(value, field.name, _each(field, item, lambda part: as_sent(part, version)))
    return value


def as_received(value: Any, version: int) -> Any:
    """What a receiver makes of it: what the version does not carry has its declared default."""
    value = copy.copy(value)
    for field in fields_of(type(value)):
        item = getattr(value, field.name) if field.exists(version) else field.absent_value()
        if field.exists(version):
            item = _each(field, item, lambda part: as_received(part, version))
        setattr(value, field.name, item)
    return value


def _each(field: WireField, item: Any, change: Any) -> Any:
    if field.struct is None or item is None:
        return item
    return [change(part) for part in item] if field.is_array else change(item)


OWN_TAGS_FROM = 2530
"""Kafka has no tag of this number or above."""


def own_tags(message: Any, version: int) -> Iterator[int]:
    """The tags of Anabranch's own that this version of a message carries."""
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if not field.exists(version) or value is None:
            continue
        if field.tag is not None and field.tag >= OWN_TAGS_FROM:
            if value != field.absent_value():
                yield field.tag
        elif field.struct is not None:
            for one in value if field.is_array else [value]:
                yield from own_tags(one, version)


def declared_own_tags(message: type[Any]) -> Iterator[int]:
    """The tags of Anabranch's own that a message, or what it holds, declares."""
    for field in fields_of(message):
        if field.tag is not None and field.tag >= OWN_TAGS_FROM:
            yield field.tag
        elif field.struct is not None:
            yield from declared_own_tags(field.struct)
