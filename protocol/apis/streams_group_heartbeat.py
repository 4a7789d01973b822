"""StreamsGroupHeartbeat (key 88), v0, flexible: join a streams group, stay in it, or leave it (KIP-1071).

A member that joins says what its topology is made of; the broker makes the topics in between and deals the tasks.
What is null in a request has not changed since the last one.
"""

from __future__ import annotations

from anabranch.protocol.wire import Boolean, Int8, Int16, Int32, Int64, Text, UInt16, always, message


@message
class KeyValue:
    key: Text
    value: Text


@message
class TopicInfo:
    name: Text
    partitions: Int32
    """0: as many as what it is made of has; of changelogs always."""
    replication_factor: Int16
    """0: the broker's default."""
    topic_configs: list[KeyValue]


@message
class CopartitionGroup:
    source_topics: list[Int16]
    """Places in the lists of the subtopology."""
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


@message
class Subtopology:
    subtopology_id: Text
    source_topics: list[Text]
    source_topic_regex: list[Text]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[Text]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


@message
class Topology:
    epoch: Int32
    subtopologies: list[Subtopology]


@message
class TaskIds:
    subtopology_id: Text
    partitions: list[Int32]


@message
class Endpoint:
    host: Text
    port: UInt16


@message
class TaskOffset:
    subtopology_id: Text
    partition: Int32
    offset: Int64


@message
class StreamsGroupHeartbeatRequest:
    group_id: Text
    member_id: Text
    """Made by the member, which keeps it as long as it lives."""
    member_epoch: Int32
    """0: join, or join again; -1: leave; -2: a static member leaves for a while; else the epoch that it knows."""
    endpoint_information_epoch: Int32
    instance_id: Text | None = always(absent=None)
    rack_id: Text | None = always(absent=None)
    rebalance_timeout_ms: Int32 = always(absent=-1)
    topology: Topology | None = always(absent=None)
    """Of one that joins."""
    active_tasks: list[TaskIds] | None = always(absent=None)
    """What the member owns; these three lists are all null, or none is."""
    standby_tasks: list[TaskIds] | None = always(absent=None)
    warmup_tasks: list[TaskIds] | None = always(absent=None)
    process_id: Text | None = always(absent=None)
    """The instance of the application that the member is a thread of."""
    user_endpoint: Endpoint | None = always(absent=None)
    client_tags: list[KeyValue] | None = always(absent=None)
    task_offsets: list[TaskOffset] | None = always(absent=None)
    task_end_offsets: list[TaskOffset] | None = always(absent=None)
    shutdown_application: Boolean = always(absent=False)


@message
class Status:
    status_code: Int8
    status_detail: Text


@message
class TopicPartition:
    topic: Text
    partitions: list[Int32]


@message
class EndpointToPartitions:
    user_endpoint: Endpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


@message
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: Int32 = always(absent=0)
    error_code: Int16
    error_message: Text | None = always(absent=None)
    member_id: Text = always(absent="")
    member_epoch: Int32 = always(absent=0)
    heartbeat_interval_ms: Int32 = always(absent=0)
    acceptable_recovery_lag: Int32 = always(absent=0)
    task_offset_interval_ms: Int32 = always(absent=0)
    status: list[Status] | None = always(absent=None)
    """0 stale topology, 1 missing sources, 2 incorrectly partitioned, 3 missing internal topics, 4 all shut down,
    5 the assignment waits for more members."""
    active_tasks: list[TaskIds] | None = always(absent=None)
    """The whole of it, where the member does not know it yet."""
    standby_tasks: list[TaskIds] | None = always(absent=None)
    warmup_tasks: list[TaskIds] | None = always(absent=None)
    endpoint_information_epoch: Int32 = always(absent=0)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = always(absent=None)
    """Who may be asked for the state of which partitions, where that is new."""
