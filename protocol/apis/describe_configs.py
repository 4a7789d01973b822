"""DescribeConfigs (key 32), v0-v4, flexible from v4.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Boolean, Int16, Int32, Int8, Text, always, since, until


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResource:
    resource_type: Int8
    resource_name: Text
    configuration_keys: list[Text] | None


@dataclass(slots=True, kw_only=True)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource]
    include_synonyms: Boolean = since(1, absent=False)
    include_documentation: Boolean = since(3, absent=False)


@dataclass(slots=True, kw_only=True)
class DescribeConfigsSynonym:
    name: Text
    value: Text | None
    source: Int8


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResourceResult:
    name: Text
    value: Text | None
    read_only: Boolean
    is_default: Boolean = until(0, absent=False)
    config_source: Int8 = since(1, absent=-1)
    is_sensitive: Boolean
    synonyms: list[DescribeConfigsSynonym] = since(1, absent=list)
    config_type: Int8 = since(3, absent=0)
    documentation: Text | None = since(3, absent="")


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResult:
    error_code: Int16
    error_message: Text | None
    resource_type: Int8
    resource_name: Text
    configs: list[DescribeConfigsResourceResult]


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[DescribeConfigsResult]
