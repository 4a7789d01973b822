"""ListPartitionReassignments (key 46), v0, flexible from v0."""

from __future__ import annotations

from anabranch.protocol.wire import Int16, Int32, Text, always, message


@message
class ListPartitionReassignmentsTopics:
    name: Text
    partition_indexes: list[Int32]


@message
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = always(absent=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = always(absent=None)


@message
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


@message
class OngoingTopicReassignment:
    name: Text
    partitions: list[OngoingPartitionReassignment]


@message
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None
    topics: list[OngoingTopicReassignment]
