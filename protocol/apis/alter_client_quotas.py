"""AlterClientQuotas (key 49), v0-v1, flexible from v1."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Boolean, Float64, Int16, Int32, Text, always


@dataclass(slots=True, kw_only=True)
class EntityData:
    entity_type: Text
    entity_name: Text | None


@dataclass(slots=True, kw_only=True)
class OpData:
    key: Text
    value: Float64
    remove: Boolean


@dataclass(slots=True, kw_only=True)
class EntryData:
    entity: list[EntityData]
    ops: list[OpData]


@dataclass(slots=True, kw_only=True)
class AlterClientQuotasRequest:
    entries: list[EntryData]
    validate_only: Boolean


@dataclass(slots=True, kw_only=True)
class EntryDataResult:
    error_code: Int16
    error_message: Text | None
    entity: list[EntityData]


@dataclass(slots=True, kw_only=True)
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = always(absent=0)
    entries: list[EntryDataResult]
