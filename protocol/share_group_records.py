"""The records of share groups (KIP-932) in `__consumer_offsets`: keys 10 to 15, and their values.

Like those of KIP-848 groups: a key's int16 version is its kind, values are version 0 and flexible. Source:
ShareGroup*Key.json and ShareGroup*Value.json of Kafka's group coordinator, 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from anabranch.protocol.consumer_group_records import TopicPartitions
from anabranch.protocol.wire import Int8, Int32, Int64, Text, Uuid, always, message


@message
class ShareGroupMemberMetadataKey:
    """The key of a member's subscription."""

    group_id: Text
    member_id: Text


@message
class ShareGroupMemberMetadataValue:
    """A member's subscription."""

    flexible_from: ClassVar[int] = 0
    rack_id: Text | None = always(absent=None)
    client_id: Text
    client_host: Text
    subscribed_topic_names: list[Text]


@message
class ShareGroupMetadataKey:
    """The key of a group."""

    group_id: Text


@message
class ShareGroupMetadataValue:
    """A group's epoch, and the metadata that it is for."""

    flexible_from: ClassVar[int] = 0
    epoch: Int32
    metadata_hash: Int64


@message
class ShareGroupTargetAssignmentMetadataKey:
    """The key of the epoch of all targets."""

    group_id: Text


@message
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch of the group that all targets are for."""

    flexible_from: ClassVar[int] = 0
    assignment_epoch: Int32


@message
class ShareGroupTargetAssignmentMemberKey:
    """The key of a member's target assignment."""

    group_id: Text
    member_id: Text


@message
class ShareGroupTargetAssignmentMemberValue:
    """A member's target assignment."""

    flexible_from: ClassVar[int] = 0
    topic_partitions: list[TopicPartitions]


@message
class ShareGroupCurrentMemberAssignmentKey:
    """The key of a member's current assignment."""

    group_id: Text
    member_id: Text


@message
class ShareGroupCurrentMemberAssignmentValue:
    """A member's current assignment, and its epochs."""

    flexible_from: ClassVar[int] = 0
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


@message
class TopicPartitionsInfo:
    """Some partitions of one topic, with its name."""

    topic_id: Uuid
    topic_name: Text
    partitions: list[Int32]


@message
class TopicInfo:
    """A topic with its name."""

    topic_id: Uuid
    topic_name: Text


@message
class ShareGroupStatePartitionMetadataKey:
    """The key of the partitions with a share state."""

    group_id: Text


@message
class ShareGroupStatePartitionMetadataValue:
    """The partitions with a share state, those being initialized, and those being deleted."""

    flexible_from: ClassVar[int] = 0
    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]


KINDS: Final[Mapping[int, tuple[type[Any], type[Any] | None]]] = {
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}
