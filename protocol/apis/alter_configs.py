"""AlterConfigs (key 33), v0-v2, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int8, Int16, Int32, SecretText, Text, always, message


@message
class AlterableConfig:
    name: Text
    value: SecretText | None


@message
class AlterConfigsResource:
    resource_type: Int8
    resource_name: Text
    configs: list[AlterableConfig]


@message
class AlterConfigsRequest:
    resources: list[AlterConfigsResource]
    validate_only: Boolean


@message
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: Text | None
    resource_type: Int8
    resource_name: Text


@message
class AlterConfigsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    responses: list[AlterConfigsResourceResponse]
