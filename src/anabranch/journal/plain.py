"""Messages as JSON values: the fields of their version, without the bytes of records. Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from anabranch.broker.config.config_def import Scope, config_def
from anabranch.broker.config.listeners import base_name
from anabranch.protocol.records.batch import read_header
from anabranch.protocol.varint import Buffer
from anabranch.protocol.wire import Kind, WireField, fields_of

BYTES_SHOWN: Final = 64
HEADER_BYTES: Final = 61
MAGIC_AT: Final = 16


class RecordsHead(NamedTuple):
    """The size of records, and the bytes of the first header."""

    size_bytes: int
    header: bytes


def plain(message: Any, version: int) -> dict[str, Any]:
    """A message as a JSON object."""
    fields = {}
    for name, convert, is_secret in _conversions(type(message), version):
        content = getattr(message, name)
        if content is not None:
            hidden = is_secret and _is_secret(getattr(message, "name", None))
            content = {"secret": True} if hidden else convert(content)
        fields[name] = content
    return fields


def _is_secret(setting: str | None) -> bool:
    """Whether to hide a field that is declared secret: only values of settings known to be public are shown."""
    if setting is None or setting in config_def(Scope.TOPIC).keys_by_name():
        return setting is None
    key = config_def(Scope.BROKER).keys_by_name().get(base_name(setting)[1])
    return key is None or key.sensitive


Convert = Callable[[Any], Any]


Conversions = tuple[tuple[str, Convert, bool], ...]
"""The fields of a message at a version: name, conversion to JSON, and whether the field is declared secret."""
_known_conversions: Final[dict[tuple[type[Any], int], Conversions]] = {}


def _conversions(message: type[Any], version: int) -> Conversions:
    found = _known_conversions.get((message, version))
    if found is None:
        found = _known_conversions[message, version] = tuple(
            (field.name, _each(convert) if field.is_array else convert, field.secret)
            for field in fields_of(message)
            if field.exists(version)
            for convert in (_conversion(field, version),)
        )
    return found


def _each(convert: Convert) -> Convert:
    return lambda values: [convert(one) for one in values]


def _conversion(field: WireField, version: int) -> Convert:
    if field.struct is not None:
        return lambda value: plain(value, version)
    match field.kind:
        case Kind.UUID:
            return lambda value: base64.urlsafe_b64encode(value).rstrip(b"=").decode()
        case Kind.BYTES:
            return lambda value: {"bytes": len(value), "hex": bytes(value[:BYTES_SHOWN]).hex()}
        case Kind.RECORDS:
            return records
        case Kind.BOOLEAN | Kind.TEXT | Kind.FLOAT64:
            return lambda value: value
        case _:
            return int


def records(data: Buffer | RecordsHead) -> dict[str, Any]:
    """The size of records, and the header of the first batch."""
    size_bytes, header = data if isinstance(data, RecordsHead) else (len(data), data)
    fields: dict[str, Any] = {"bytes": size_bytes}
    if len(header) >= HEADER_BYTES and header[MAGIC_AT] == 2:
        head = read_header(header)
        fields |= {
            "base_offset": head.base_offset,
            "records": head.record_count,
            "producer_id": head.producer_id,
            "producer_epoch": head.producer_epoch,
            "base_sequence": head.base_sequence,
            "transactional": head.is_transactional,
        }
    return fields


def records_bytes(message: Any) -> int:
    """The size of all record batches of a message, whose bytes belong to logs and connections."""
    total = 0
    for name, nested, is_array in _ways(type(message)):
        value = getattr(message, name)
        if value is None:
            continue
        if nested is None:
            total += len(value)
        else:
            for one in value if is_array else (value,):
                total += records_bytes(one)
    return total


def without_records(message: Any) -> Any:
    """Return a copy of a message with heads in place of its record batches: they keep no memory of logs and frames."""
    kind = type(message)
    stripped: Any = object.__new__(kind)
    for name in kind.__slots__:
        setattr(stripped, name, getattr(message, name))
    for name, nested, is_array in _ways(kind):
        value = getattr(message, name)
        if value is None:
            continue
        if nested is None:
            value = RecordsHead(len(value), bytes(value[:HEADER_BYTES]))
        else:
            value = [without_records(one) for one in value] if is_array else without_records(value)
        setattr(stripped, name, value)
    return stripped


def holds_records(message: type[Any]) -> bool:
    """Whether messages of this class may hold record batches."""
    return bool(_ways(message))


Ways = tuple[tuple[str, type[Any] | None, bool], ...]
"""The fields of a message that are record batches, or lead to them."""
_known_ways: Final[dict[type[Any], Ways]] = {}


def _ways(message: type[Any]) -> Ways:
    known = _known_ways.get(message)
    if known is None:
        found: list[tuple[str, type[Any] | None, bool]] = []
        for field in fields_of(message):
            if field.kind is Kind.RECORDS:
                found.append((field.name, None, False))
            elif field.struct is not None and _ways(field.struct):
                found.append((field.name, field.struct, field.is_array))
        known = _known_ways[message] = tuple(found)
    return known
