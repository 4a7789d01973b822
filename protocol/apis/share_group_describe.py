"""ShareGroupDescribe (key 77), v1, flexible: members and state of share groups (KIP-932).

v0   early access, gone with Kafka 4.1
v1   the same layout
"""

from __future__ import annotations

from anabranch.protocol.apis.consumer_group_describe import Assignment
from anabranch.protocol.wire import Boolean, Int16, Int32, Text, always, message


@message
class ShareGroupDescribeRequest:
    group_ids: list[Text]
    include_authorized_operations: Boolean = always(absent=False)


@message
class Member:
    member_id: Text
    rack_id: Text | None = always(absent=None)
    member_epoch: Int32
    client_id: Text
    client_host: Text
    subscribed_topic_names: list[Text]
    assignment: Assignment


@message
class DescribedGroup:
    error_code: Int16
    error_message: Text | None = always(absent=None)
    group_id: Text
    group_state: Text = always(absent="")
    group_epoch: Int32 = always(absent=0)
    assignment_epoch: Int32 = always(absent=0)
    assignor_name: Text = always(absent="")
    members: list[Member] = always(absent=list)
    authorized_operations: Int32 = always(absent=-2147483648)


@message
class ShareGroupDescribeResponse:
    throttle_time_ms: Int32 = always(absent=0)
    groups: list[DescribedGroup]
