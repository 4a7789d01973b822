"""Heartbeat (key 12), v0-v4, flexible from v4: keep a member's session alive; report rebalances.

v1   throttle time
v3   static members                                                      KIP-345
"""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, message, since


@message
class HeartbeatRequest:
    group_id: Text
    generation_id: Int32
    member_id: Text
    group_instance_id: Text | None = since(3, absent=None)


@message
class HeartbeatResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    error_code: Int16
