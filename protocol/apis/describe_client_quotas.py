"""DescribeClientQuotas (key 48), v0-v1, flexible from v1."""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Float64, Int8, Int16, Int32, Text, always, message


@message
class ComponentData:
    entity_type: Text
    match_type: Int8
    match: Text | None


@message
class DescribeClientQuotasRequest:
    components: list[ComponentData]
    strict: Boolean


@message
class EntityData:
    entity_type: Text
    entity_name: Text | None


@message
class ValueData:
    key: Text
    value: Float64


@message
class EntryData:
    entity: list[EntityData]
    values: list[ValueData]


@message
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None
    entries: list[EntryData] | None
