"""DeleteAcls (key 31), v0-v3, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int8, Int16, Int32, Text, always, message, since


@message
class DeleteAclsFilter:
    resource_type_filter: Int8
    resource_name_filter: Text | None
    pattern_type_filter: Int8 = since(1, absent=3)
    principal_filter: Text | None
    host_filter: Text | None
    operation: Int8
    permission_type: Int8


@message
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter]


@message
class DeleteAclsMatchingAcl:
    error_code: Int16
    error_message: Text | None
    resource_type: Int8
    resource_name: Text
    pattern_type: Int8 = since(1, absent=3)
    principal: Text
    host: Text
    operation: Int8
    permission_type: Int8


@message
class DeleteAclsFilterResult:
    error_code: Int16
    error_message: Text | None
    matching_acls: list[DeleteAclsMatchingAcl]


@message
class DeleteAclsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    filter_results: list[DeleteAclsFilterResult]
