"""DescribeClientQuotas (key 48), v0-v1, flexible from v1."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Boolean, Float64, Int8, Int16, Int32, Text, always


@dataclass(slots=True, kw_only=True)
class ComponentData:
    entity_type: Text
    match_type: Int8
    match: Text | None


@dataclass(slots=True, kw_only=True)
class DescribeClientQuotasRequest:
    components: list[ComponentData]
    strict: Boolean


@dataclass(slots=True, kw_only=True)
class EntityData:
    entity_type: Text
    entity_name: Text | None


@dataclass(slots=True, kw_only=True)
class ValueData:
    key: Text
    value: Float64


@dataclass(slots=True, kw_only=True)
class EntryData:
    entity: list[EntityData]
    values: list[ValueData]


@dataclass(slots=True, kw_only=True)
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None
    entries: list[EntryData] | None
