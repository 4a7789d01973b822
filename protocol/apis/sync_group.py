"""SyncGroup (key 14), v0-v5, flexible from v4: the leader sends the assignment, each member gets its own.

v1   throttle time
v3   static members                                                      KIP-345
v5   protocol type and name, checked against the group's                 KIP-559
"""

from __future__ import annotations

from anabranch.protocol.wire import Bytes, Int16, Int32, Text, message, since


@message
class SyncGroupRequestAssignment:
    member_id: Text
    assignment: Bytes


@message
class SyncGroupRequest:
    group_id: Text
    generation_id: Int32
    member_id: Text
    group_instance_id: Text | None = since(3, absent=None)
    protocol_type: Text | None = since(5, absent=None)
    protocol_name: Text | None = since(5, absent=None)
    assignments: list[SyncGroupRequestAssignment]
    """Empty unless the member leads."""


@message
class SyncGroupResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    error_code: Int16
    protocol_type: Text | None = since(5, absent=None)
    protocol_name: Text | None = since(5, absent=None)
    assignment: Bytes
