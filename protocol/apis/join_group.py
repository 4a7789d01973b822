"""JoinGroup (key 11), v0-v9, flexible from v6: join a group, or its next generation; the leader gets all members.

v1   a time limit for rebalances apart from the session's                KIP-62
v2   throttle time
v4   a first join is refused with the member id to come back with        KIP-394
v5   static members                                                      KIP-345
v7   the protocol's type and name in the answer; a null name before any was chosen  KIP-559
v8   why the member joins                                                KIP-800
v9   the leader may be told to skip the assignment                       KIP-814
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Bytes, Int16, Int32, Text, always, message, since, tagged


@message
class JoinGroupRequestProtocol:
    name: Text
    metadata: Bytes


@message
class JoinGroupRequest:
    group_id: Text
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, absent=-1)
    """v0 means the session's timeout."""
    member_id: Text
    """Empty the first time."""
    group_instance_id: Text | None = since(5, absent=None)
    protocol_type: Text
    protocols: list[JoinGroupRequestProtocol]
    """In order of preference; the metadata is between the members."""
    reason: Text | None = since(8, absent=None)
    holds_gates: Boolean = tagged(2547, since=6, absent=False)
    """Whether the member keeps the order of keys across resizes itself (D3, R9); else its coordinator does."""


@message
class JoinGroupResponseMember:
    member_id: Text
    group_instance_id: Text | None = since(5, absent=None)
    metadata: Bytes


@message
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
    """Only the leader gets them."""
