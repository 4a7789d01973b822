"""JoinGroup (key 11), v0-v9, flexible from v6.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.wire import Boolean, Bytes, Int16, Int32, Text, always, since


@dataclass(slots=True, kw_only=True)
class JoinGroupRequestProtocol:
    name: Text
    metadata: Bytes


@dataclass(slots=True, kw_only=True)
class JoinGroupRequest:
    group_id: Text
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, absent=-1)
    member_id: Text
    group_instance_id: Text | None = since(5, absent=None)
    protocol_type: Text
    protocols: list[JoinGroupRequestProtocol]
    reason: Text | None = since(8, absent=None)


@dataclass(slots=True, kw_only=True)
class JoinGroupResponseMember:
    member_id: Text
    group_instance_id: Text | None = since(5, absent=None)
    metadata: Bytes


@dataclass(slots=True, kw_only=True)
class JoinGroupResponse:
    throttle_time_ms: Int32 = since(2, absent=0)
    error_code: Int16
    generation_id: Int32 = always(absent=-1)
    protocol_type: Text | None = since(7, absent=None)
    protocol_name: Text | None = always(nullable_since=7)
    leader: Text
    skip_assignment: Boolean = since(9, absent=False)
    member_id: Text
    members: list[JoinGroupResponseMember]
