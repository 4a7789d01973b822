"""AlterConfigs (key 33), v0-v2, flexible from v2."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Boolean, Int8, Int16, Int32, Text, always


@dataclass(slots=True, kw_only=True)
class AlterableConfig:
    name: Text
    value: Text | None


@dataclass(slots=True, kw_only=True)
class AlterConfigsResource:
    resource_type: Int8
    resource_name: Text
    configs: list[AlterableConfig]


@dataclass(slots=True, kw_only=True)
class AlterConfigsRequest:
    resources: list[AlterConfigsResource]
    validate_only: Boolean


@dataclass(slots=True, kw_only=True)
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: Text | None
    resource_type: Int8
    resource_name: Text


@dataclass(slots=True, kw_only=True)
class AlterConfigsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    responses: list[AlterConfigsResourceResponse]
