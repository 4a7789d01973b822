"""ListConfigResources (key 74), v0-v1, flexible from v0: the resources that have a configuration.

v0   subscriptions to clients' metrics, alone                            KIP-714
v1   topics, brokers, loggers and groups, too                            KIP-1142
"""

from __future__ import annotations

from anabranch.protocol.wire import Int8, Int16, Int32, Text, always, message, since


@message
class ListConfigResourcesRequest:
    resource_types: list[Int8] = since(1, absent=list)
    """None: all of them."""


@message
class ConfigResource:
    resource_name: Text
    resource_type: Int8 = since(1, absent=16)


@message
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    config_resources: list[ConfigResource]
