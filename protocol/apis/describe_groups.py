"""DescribeGroups (key 15), v0-v6, flexible from v5.

v3   authorized operations                                               KIP-430
v4   static members                                                      KIP-345
v6   GROUP_ID_NOT_FOUND, with a message                                  KIP-1043
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Bytes, Int16, Int32, Text, message, since, tagged


@message
class DescribeGroupsRequest:
    groups: list[Text]
    include_authorized_operations: Boolean = since(3, absent=False)
    generation_aware: Boolean = tagged(2560, since=5, absent=False)
    """Whether the client reads gates: only then does the answer carry tagged fields of ours (D27)."""


@message
class DescribedGroupMember:
    member_id: Text
    group_instance_id: Text | None = since(4, absent=None)
    client_id: Text
    client_host: Text
    member_metadata: Bytes
    member_assignment: Bytes
    holds_gates: Boolean = tagged(2547, since=5, absent=False)
    """Whether the member keeps the order of keys across resizes itself."""


@message
class WithheldPartition:
    partition_index: Int32
    reason: Text


@message
class WithheldTopic:
    name: Text
    partitions: list[WithheldPartition]


@message
class DescribedGroup:
    error_code: Int16
    error_message: Text | None = since(6, absent=None)
    group_id: Text
    group_state: Text
    protocol_type: Text
    protocol_data: Text
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = since(3, absent=-2147483648)
    withheld: list[WithheldTopic] = tagged(2546, since=5, absent=list)
    """What the coordinator assigns to nobody, because the group has not read what came before, and why."""


@message
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = since(1, absent=0)
    groups: list[DescribedGroup]
