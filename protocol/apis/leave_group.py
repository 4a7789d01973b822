"""LeaveGroup (key 13), v0-v5, flexible from v4: remove members before their sessions expire.

v1   throttle time
v3   several members at once, static ones by their instance id           KIP-345
v5   why                                                                 KIP-800
"""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, always, message, since, until


@message
class MemberIdentity:
    member_id: Text
    group_instance_id: Text | None = always(absent=None)
    reason: Text | None = since(5, absent=None)


@message
class LeaveGroupRequest:
    group_id: Text
    member_id: Text = until(2, absent="")
    """The one that leaves, before there could be several."""
    members: list[MemberIdentity] = since(3, absent=list)


@message
class MemberResponse:
    member_id: Text
    group_instance_id: Text | None
    error_code: Int16


@message
class LeaveGroupResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    error_code: Int16
    members: list[MemberResponse] = since(3, absent=list)
