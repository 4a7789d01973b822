"""Messages as JSON values: the fields of their version, without the bytes of records. Pure."""

from __future__ import annotations

import base64
from typing import Any, Final

from anabranch.broker.config.config_def import Scope, config_def
from anabranch.broker.config.listeners import base_name
from anabranch.protocol.records.batch import read_header
from anabranch.protocol.varint import Buffer
from anabranch.protocol.wire import Kind, WireField, fields_of

BYTES_SHOWN: Final = 64
HEADER_BYTES: Final = 61
MAGIC_AT: Final = 16


def plain(message: Any, version: int) -> dict[str, Any]:
    """A message as a JSON object."""
    fields = {}
    for field in fields_of(type(message)):
        if field.exists(version):
            content = getattr(message, field.name)
            hidden = field.secret and content is not None and _is_secret(getattr(message, "name", None))
            fields[field.name] = {"secret": True} if hidden else _field(field, content, version)
    return fields


def _is_secret(setting: str | None) -> bool:
    """Whether to hide a field that is declared secret: only values of settings known to be public are shown."""
    if setting is None or setting in config_def(Scope.TOPIC).keys_by_name():
        return setting is None
    key = config_def(Scope.BROKER).keys_by_name().get(base_name(setting)[1])
    return key is None or key.sensitive


def _field(field: WireField, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_one(field, one, version) for one in value]
    return _one(field, value, version)


def _one(field: WireField, value: Any, version: int) -> Any:
    if field.struct is not None:
        return plain(value, version)
    match field.kind:
        case Kind.UUID:
            return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
        case Kind.BYTES:
            return {"bytes": len(value), "hex": bytes(value[:BYTES_SHOWN]).hex()}
        case Kind.RECORDS:
            return records(value)
        case Kind.BOOLEAN | Kind.TEXT | Kind.FLOAT64:
            return value
        case _:
            return int(value)


def records(data: Buffer) -> dict[str, Any]:
    """The size of records, and the header of the first batch."""
    fields: dict[str, Any] = {"bytes": len(data)}
    if len(data) >= HEADER_BYTES and data[MAGIC_AT] == 2:
        head = read_header(data)
        fields |= {
            "base_offset": head.base_offset,
            "records": head.record_count,
            "producer_id": head.producer_id,
            "producer_epoch": head.producer_epoch,
            "base_sequence": head.base_sequence,
            "transactional": head.is_transactional,
        }
    return fields


def holds_records(message: type[Any]) -> bool:
    """Whether messages of this class may hold record batches, whose bytes belong to other code."""
    found = _known.get(message)
    if found is None:
        found = _known[message] = any(
            field.kind is Kind.RECORDS or (field.struct is not None and holds_records(field.struct))
            for field in fields_of(message)
        )
    return found


_known: Final[dict[type[Any], bool]] = {}
