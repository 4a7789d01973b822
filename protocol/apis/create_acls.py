"""CreateAcls (key 30), v0-v3, flexible from v2."""

from __future__ import annotations

from anabranch.protocol.wire import Int8, Int16, Int32, Text, always, message, since


@message
class AclCreation:
    resource_type: Int8
    resource_name: Text
    resource_pattern_type: Int8 = since(1, absent=3)
    principal: Text
    host: Text
    operation: Int8
    permission_type: Int8


@message
class CreateAclsRequest:
    creations: list[AclCreation]


@message
class AclCreationResult:
    error_code: Int16
    error_message: Text | None


@message
class CreateAclsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[AclCreationResult]
