"""DescribeConfigs (key 32), v0-v4, flexible from v4: effective settings of topics and brokers.

v1   where each value comes from, and what it overrides                  KIP-226
v2   the broker answers first and throttles after                        KIP-219
v3   type and documentation of each setting                              KIP-569
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int8, Int16, Int32, Text, always, message, since, until


@message
class DescribeConfigsResource:
    resource_type: Int8
    """2: topic; 4: broker; 8: broker logger."""
    resource_name: Text
    configuration_keys: list[Text] | None
    """Null: all of them."""


@message
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource]
    include_synonyms: Boolean = since(1, absent=False)
    include_documentation: Boolean = since(3, absent=False)


@message
class DescribeConfigsSynonym:
    name: Text
    value: Text | None
    source: Int8


@message
class DescribeConfigsResourceResult:
    name: Text
    value: Text | None
    """Null when it is sensitive."""
    read_only: Boolean
    is_default: Boolean = until(0, absent=False)
    config_source: Int8 = since(1, absent=-1)
    """1: the topic's own; 4: the broker's file; 5: the default."""
    is_sensitive: Boolean
    synonyms: list[DescribeConfigsSynonym] = since(1, absent=list)
    config_type: Int8 = since(3, absent=0)
    documentation: Text | None = since(3, absent="")


@message
class DescribeConfigsResult:
    error_code: Int16
    error_message: Text | None
    resource_type: Int8
    resource_name: Text
    configs: list[DescribeConfigsResourceResult]


@message
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[DescribeConfigsResult]
