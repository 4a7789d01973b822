"""StreamsGroupDescribe (key 89), v0, flexible: members, tasks and topology of streams groups (KIP-1071)."""

from __future__ import annotations

from anabranch.protocol.apis.streams_group_heartbeat import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo
from anabranch.protocol.wire import Boolean, Int16, Int32, Text, always, message


@message
class StreamsGroupDescribeRequest:
    group_ids: list[Text]
    include_authorized_operations: Boolean = always(absent=False)


@message
class Subtopology:
    subtopology_id: Text
    source_topics: list[Text]
    repartition_sink_topics: list[Text]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


@message
class Topology:
    epoch: Int32
    subtopologies: list[Subtopology] | None = always(absent=None)


@message
class Assignment:
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@message
class Member:
    member_id: Text
    member_epoch: Int32
    instance_id: Text | None = always(absent=None)
    rack_id: Text | None = always(absent=None)
    client_id: Text
    client_host: Text
    topology_epoch: Int32
    process_id: Text
    user_endpoint: Endpoint | None = always(absent=None)
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: Boolean


@message
class DescribedGroup:
    error_code: Int16
    error_message: Text | None = always(absent=None)
    group_id: Text
    group_state: Text = always(absent="")
    group_epoch: Int32 = always(absent=0)
    assignment_epoch: Int32 = always(absent=0)
    topology: Topology | None = always(absent=None)
    members: list[Member] = always(absent=list)
    authorized_operations: Int32 = always(absent=-2147483648)


@message
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32 = always(absent=0)
    groups: list[DescribedGroup]
