"""Encodes the records of KIP-848, share and streams groups in `__consumer_offsets`.

A key's int16 version is its kind, and determines the classes of key and value; values are all version 0. A null value
deletes. Source: Kafka's `GroupCoordinatorRecordSerde`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from anabranch.protocol import codec, consumer_group_records, share_group_records, streams_group_records
from anabranch.protocol.errors import DecodeError

KINDS: Final[Mapping[int, tuple[type[Any], type[Any] | None]]] = {
    **consumer_group_records.KINDS,
    **share_group_records.KINDS,
    **streams_group_records.KINDS,
}
VALUE_OF: Final = dict(KINDS.values())
_KIND_OF: Final = {key: kind for kind, (key, _) in KINDS.items()}
_VALUE_VERSION: Final = 0
_VERSION: Final = struct.Struct(">h")

Record = tuple[Any, Any]
"""A key and its value; a value of None deletes."""


def is_ours(key: Any) -> bool:
    """Whether a key belongs to these records."""
    return type(key) in _KIND_OF


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Encode one record for the journal."""
    key, content = record
    kind = _KIND_OF[type(key)]
    encoded = None if content is None else _VERSION.pack(_VALUE_VERSION) + codec.encode(content, _VALUE_VERSION)
    return _VERSION.pack(kind) + codec.encode(key, kind), encoded


def decode_key(kind: int, data: bytes) -> Any | None:
    """Decode a key of these kinds; None for any other. Raises DecodeError."""
    if kind not in KINDS:
        return None
    return codec.decode(KINDS[kind][0], kind, data, _VERSION.size)[0]


def decode_value(key: Any, data: bytes) -> Any | None:
    """Decode the value of a key; None if it is not used. Raises DecodeError."""
    cls = VALUE_OF[type(key)]
    if cls is None:
        return None
    if len(data) < _VERSION.size or _VERSION.unpack_from(data)[0] != _VALUE_VERSION:
        raise DecodeError("the schema version is not known", buffer=data)
    return codec.decode(cls, _VALUE_VERSION, data, _VERSION.size)[0]
