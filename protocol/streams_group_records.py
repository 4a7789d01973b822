"""The records of streams groups (KIP-1071) in `__consumer_offsets`: keys 17 and 19 to 23, and their values.

Like those of KIP-848 groups: a key's int16 version is its kind, values are version 0 and flexible. Kafka does not use
kind 18. The topology is stored as a member sent it. Source: StreamsGroup*Key.json and StreamsGroup*Value.json of
Kafka's group coordinator, 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from anabranch.protocol.apis.streams_group_heartbeat import Endpoint, KeyValue, Subtopology
from anabranch.protocol.wire import Int8, Int32, Int64, Text, always, message, tagged


@message
class StreamsGroupMetadataKey:
    """The key of a group."""

    group_id: Text


@message
class StreamsGroupMetadataValue:
    """A group's epoch, and its inputs: topics, settings, and the topology whose topics all exist."""

    flexible_from: ClassVar[int] = 0
    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = tagged(0, since=0, absent=-1)
    last_assignment_configs: list[KeyValue] | None = tagged(1, since=0, absent=None)


@message
class StreamsGroupMemberMetadataKey:
    """The key of a member's metadata."""

    group_id: Text
    member_id: Text


@message
class StreamsGroupMemberMetadataValue:
    """A member's metadata."""

    flexible_from: ClassVar[int] = 0
    instance_id: Text | None = always(absent=None)
    rack_id: Text | None = always(absent=None)
    client_id: Text
    client_host: Text
    rebalance_timeout_ms: Int32
    topology_epoch: Int32
    process_id: Text
    user_endpoint: Endpoint | None = always(absent=None)
    client_tags: list[KeyValue]


@message
class StreamsGroupTargetAssignmentMetadataKey:
    """The key of the epoch of all targets."""

    group_id: Text


@message
class StreamsGroupTargetAssignmentMetadataValue:
    """The epoch of the group that all targets are for."""

    flexible_from: ClassVar[int] = 0
    assignment_epoch: Int32


@message
class StreamsGroupTargetAssignmentMemberKey:
    """The key of a member's target assignment."""

    group_id: Text
    member_id: Text


@message
class TaskIds:
    """Some tasks of one subtopology."""

    subtopology_id: Text
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = tagged(0, since=0, absent=None)
    """The epochs in which a member got these tasks: for active tasks of its current assignment."""


@message
class StreamsGroupTargetAssignmentMemberValue:
    """A member's target assignment."""

    flexible_from: ClassVar[int] = 0
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@message
class StreamsGroupCurrentMemberAssignmentKey:
    """The key of a member's current assignment."""

    group_id: Text
    member_id: Text


@message
class StreamsGroupCurrentMemberAssignmentValue:
    """A member's current assignment: its epochs, its tasks, and those to revoke."""

    flexible_from: ClassVar[int] = 0
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]
    active_tasks_pending_revocation: list[TaskIds]
    standby_tasks_pending_revocation: list[TaskIds]
    warmup_tasks_pending_revocation: list[TaskIds]


@message
class StreamsGroupTopologyKey:
    """The key of a group's topology."""

    group_id: Text


@message
class StreamsGroupTopologyValue:
    """A group's topology."""

    flexible_from: ClassVar[int] = 0
    epoch: Int32
    subtopologies: list[Subtopology]


KINDS: Final[Mapping[int, tuple[type[Any], type[Any] | None]]] = {
    17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
