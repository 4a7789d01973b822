"""AlterClientQuotas (key 49), v0-v1, flexible from v1."""

from __future__ import annotations

from anabranch.protocol.apis.describe_client_quotas import EntityData
from anabranch.protocol.wire import Boolean, Float64, Int16, Int32, Text, always, message


@message
class OpData:
    key: Text
    value: Float64
    remove: Boolean


@message
class EntryData:
    entity: list[EntityData]
    ops: list[OpData]


@message
class AlterClientQuotasRequest:
    entries: list[EntryData]
    validate_only: Boolean


@message
class EntryDataResult:
    error_code: Int16
    error_message: Text | None
    entity: list[EntityData]


@message
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = always(absent=0)
    entries: list[EntryDataResult]
