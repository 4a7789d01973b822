"""The records of consumer groups (KIP-848) in `__consumer_offsets`: keys 3 to 8 and 16, and their values.

A key's int16 version is its kind; keys are never flexible. Values are all version 0 and flexible. A null value deletes.
All records of one request are in one batch, so a reader finds all of them or none. Kafka 4.0 keeps the partition counts
of subscribed topics under key 4; from 4.1 on that key is only deleted, and a hash in the group's own record takes its
place (KIP-1101).

Source: ConsumerGroup*Key.json and ConsumerGroup*Value.json of Kafka's group coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from anabranch.protocol.wire import Boolean, Bytes, Int8, Int32, Int64, Text, Uuid, always, message, tagged


@message
class ConsumerGroupMetadataKey:
    """The key of a group."""

    group_id: Text


@message
class ConsumerGroupMetadataValue:
    """A group's epoch, and the metadata that it is for."""

    flexible_from: ClassVar[int] = 0
    epoch: Int32
    metadata_hash: Int64 = tagged(0, since=0, absent=0)


@message
class ConsumerGroupPartitionMetadataKey:
    """The key of Kafka 4.0's record of a group's topics."""

    group_id: Text


@message
class ConsumerGroupMemberMetadataKey:
    """The key of a member's subscription."""

    group_id: Text
    member_id: Text


@message
class ClassicProtocol:
    """An assignor that a classic member offers."""

    name: Text
    metadata: Bytes


@message
class ClassicMemberMetadata:
    """The JoinGroup data of a member that uses the classic protocol."""

    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


@message
class ConsumerGroupMemberMetadataValue:
    """A member's subscription."""

    flexible_from: ClassVar[int] = 0
    instance_id: Text | None = always(absent=None)
    rack_id: Text | None = always(absent=None)
    client_id: Text
    client_host: Text
    subscribed_topic_names: list[Text]
    subscribed_topic_regex: Text | None = always(absent=None)
    rebalance_timeout_ms: Int32
    server_assignor: Text | None = always(absent=None)
    classic_member_metadata: ClassicMemberMetadata | None = tagged(0, since=0)
    holds_gates: Boolean = tagged(2547, since=0, absent=False)
    """This project's field: whether nothing has to be withheld from the member."""
    told_session_timeout_ms: Int32 = tagged(2554, since=0, absent=-1)
    """This project's field: the longest session timeout sent to the member, which the next coordinator grants, too."""


@message
class ConsumerGroupTargetAssignmentMetadataKey:
    """The key of the epoch of all targets."""

    group_id: Text


@message
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of the group that all targets are for."""

    flexible_from: ClassVar[int] = 0
    assignment_epoch: Int32


@message
class ConsumerGroupTargetAssignmentMemberKey:
    """The key of a member's target assignment."""

    group_id: Text
    member_id: Text


@message
class TopicPartitions:
    """Some partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32]


@message
class ConsumerGroupTargetAssignmentMemberValue:
    """A member's target assignment."""

    flexible_from: ClassVar[int] = 0
    topic_partitions: list[TopicPartitions]


@message
class ConsumerGroupCurrentMemberAssignmentKey:
    """The key of a member's current assignment."""

    group_id: Text
    member_id: Text


@message
class ConsumerGroupCurrentMemberAssignmentValue:
    """A member's current assignment: its epochs, its partitions, and those to revoke."""

    flexible_from: ClassVar[int] = 0
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@message
class ConsumerGroupRegularExpressionKey:
    """The key of a group's regular expression."""

    group_id: Text
    regular_expression: Text


@message
class ConsumerGroupRegularExpressionValue:
    """The matches of an expression, and the metadata that it was evaluated on."""

    flexible_from: ClassVar[int] = 0
    topics: list[Text]
    version: Int64
    timestamp: Int64


KINDS: Final[Mapping[int, tuple[type[Any], type[Any] | None]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, None),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Kind -> the classes of key and value; values of kind 4 are not read any more."""
