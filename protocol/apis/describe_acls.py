"""DescribeAcls (key 29), v0-v3, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int8, Int16, Int32, Text, always, message, since


@message
class DescribeAclsRequest:
    resource_type_filter: Int8
    resource_name_filter: Text | None
    pattern_type_filter: Int8 = since(1, absent=3)
    principal_filter: Text | None
    host_filter: Text | None
    operation: Int8
    permission_type: Int8


@message
class AclDescription:
    principal: Text
    host: Text
    operation: Int8
    permission_type: Int8


@message
class DescribeAclsResource:
    resource_type: Int8
    resource_name: Text
    pattern_type: Int8 = since(1, absent=3)
    acls: list[AclDescription]


@message
class DescribeAclsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None
    resources: list[DescribeAclsResource]
