"""CreateAcls (key 30), v0-v3, flexible from v2."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Int8, Int16, Int32, Text, always, since


@dataclass(slots=True, kw_only=True)
class AclCreation:
    resource_type: Int8
    resource_name: Text
    resource_pattern_type: Int8 = since(1, absent=3)
    principal: Text
    host: Text
    operation: Int8
    permission_type: Int8


@dataclass(slots=True, kw_only=True)
class CreateAclsRequest:
    creations: list[AclCreation]


@dataclass(slots=True, kw_only=True)
class AclCreationResult:
    error_code: Int16
    error_message: Text | None


@dataclass(slots=True, kw_only=True)
class CreateAclsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    results: list[AclCreationResult]
