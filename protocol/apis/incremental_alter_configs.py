"""IncrementalAlterConfigs (key 44), v0-v1, flexible from v1."""

from __future__ import annotations

from anabranch.protocol.apis.alter_configs import AlterConfigsResourceResponse
from anabranch.protocol.wire import Boolean, Int8, Int32, SecretText, Text, always, message


@message
class AlterableConfig:
    name: Text
    config_operation: Int8
    value: SecretText | None


@message
class AlterConfigsResource:
    resource_type: Int8
    resource_name: Text
    configs: list[AlterableConfig]


@message
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource]
    validate_only: Boolean


@message
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    responses: list[AlterConfigsResourceResponse]
