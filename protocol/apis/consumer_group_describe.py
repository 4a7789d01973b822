"""ConsumerGroupDescribe (key 69), v0-v1, flexible from v0: consumer groups (KIP-848).

v1   of which protocol a member is
"""

from __future__ import annotations

from anabranch.protocol.apis.describe_groups import WithheldTopic
from anabranch.protocol.wire import Boolean, Int8, Int16, Int32, Text, Uuid, always, message, since, tagged


@message
class ConsumerGroupDescribeRequest:
    group_ids: list[Text]
    include_authorized_operations: Boolean
    generation_aware: Boolean = tagged(2560, since=0, absent=False)
    """Whether the client reads gates: only then does the answer carry tagged fields of ours (D27)."""


@message
class TopicPartitions:
    topic_id: Uuid
    topic_name: Text
    partitions: list[Int32]


@message
class Assignment:
    topic_partitions: list[TopicPartitions]


@message
class Member:
    member_id: Text
    instance_id: Text | None = always(absent=None)
    rack_id: Text | None = always(absent=None)
    member_epoch: Int32
    client_id: Text
    client_host: Text
    subscribed_topic_names: list[Text]
    subscribed_topic_regex: Text | None = always(absent=None)
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = since(1, absent=-1)
    """0: of the classic protocol, 1: of this one; -1: not known."""
    holds_gates: Boolean = tagged(2547, since=0, absent=False)
    """Whether the member keeps the order of keys across resizes itself."""


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
    withheld: list[WithheldTopic] = tagged(2546, since=0, absent=list)
    """What is in nobody's target, because the group has not read what came before, and why."""


@message
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32 = always(absent=0)
    groups: list[DescribedGroup]
