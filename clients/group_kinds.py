"""Describes groups of every kind for `Admin`: consumer groups, share groups and streams groups.

Each kind has its own request, and a coordinator answers GROUP_ID_NOT_FOUND for a group of another kind. So each request
is tried in turn, as far as the cluster supports it. Sources: KIP-848, KIP-932, KIP-1071; Kafka's
`kafka-share-groups.sh` and `kafka-streams-groups.sh`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from anabranch.clients.group_admin import SHARE, STREAMS, Group, Member, describe_group, partitions_in
from anabranch.clients.network import Network
from anabranch.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from anabranch.protocol.apis.share_group_describe import ShareGroupDescribeRequest
from anabranch.protocol.apis.streams_group_describe import StreamsGroupDescribeRequest, Subtopology
from anabranch.protocol.apis.streams_group_heartbeat import TaskIds
from anabranch.protocol.errors import ErrorCode, KafkaError, raise_for_error
from anabranch.protocol.topic_partition import TopicPartition

ABSENT: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""Errors for a missing group, or an unsupported kind."""


class SharedFrom(NamedTuple):
    """The progress of a share group in a partition."""

    start: int | None
    """All records before it are acknowledged; None until the first member has read."""
    left: int | None
    """The number of unacknowledged records; None: unknown to the coordinator."""


async def describe_any_group(network: Network, group_id: str) -> Group:
    """Describe one group of any kind. Raises GROUP_ID_NOT_FOUND if it does not exist."""
    for describe in (describe_group, describe_share_group, describe_streams_group):
        try:
            return await describe(network, group_id)
        except KafkaError as error:
            if error.code not in ABSENT:
                raise
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)


async def describe_share_group(network: Network, group_id: str) -> Group:
    """Describe a share group."""
    row = await _describe(network, group_id, ShareGroupDescribeRequest(group_ids=[group_id]))
    members = tuple(
        Member(
            one.member_id,
            one.client_id,
            one.client_host,
            partitions_in(one.assignment.topic_partitions),
            epoch=one.member_epoch,
        )
        for one in row.members
    )
    return _group(row, SHARE, row.assignor_name, members)


async def describe_streams_group(network: Network, group_id: str) -> Group:
    """Describe a streams group: each member reads the source topics of its topology."""
    row = await _describe(network, group_id, StreamsGroupDescribeRequest(group_ids=[group_id]))
    parts = (row.topology.subtopologies if row.topology else None) or []
    members = tuple(
        Member(
            one.member_id,
            one.client_id,
            one.client_host,
            tuple(_read(parts, one.assignment.active_tasks)),
            epoch=one.member_epoch,
            tasks=_tasks(one.assignment),
        )
        for one in row.members
    )
    return _group(row, STREAMS, STREAMS, members)


async def shared_offsets(network: Network, group_id: str) -> dict[TopicPartition, SharedFrom]:
    """Return the progress of a share group in its partitions."""
    requested = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    response: DescribeShareGroupOffsetsResponse = await network.call_coordinator(
        group_id, DescribeShareGroupOffsetsRequest(groups=[requested]), lambda answer: answer.groups[0].error_code
    )
    (group,) = response.groups
    raise_for_error(group.error_code, group.error_message or group_id)
    offsets = {}
    for topic in group.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.topic_name, row.partition_index)
            raise_for_error(row.error_code, f"{partition}: {row.error_message}")
            known = row.start_offset >= 0
            offsets[partition] = SharedFrom(
                row.start_offset if known else None, row.lag if known and row.lag >= 0 else None
            )
    return offsets


async def _describe(network: Network, group_id: str, request: Any) -> Any:
    response = await network.call_coordinator(group_id, request, lambda answer: answer.groups[0].error_code)
    (row,) = response.groups
    raise_for_error(row.error_code, row.error_message or group_id)
    return row


def _group(row: Any, kind: str, protocol: str, members: tuple[Member, ...]) -> Group:
    return Group(
        row.group_id,
        row.group_state,
        protocol,
        members,
        kind=kind,
        epoch=row.group_epoch,
        assignment_epoch=row.assignment_epoch,
    )


def _read(parts: Iterable[Subtopology], tasks: Iterable[TaskIds]) -> Iterable[TopicPartition]:
    """Return the source partitions of active tasks; may include partitions that a topic does not have."""
    by_id = {part.subtopology_id: part for part in parts}
    for task in tasks:
        part = by_id.get(task.subtopology_id)
        if part is not None:
            for name in (*part.source_topics, *(one.name for one in part.repartition_source_topics)):
                yield from (TopicPartition(name, index) for index in task.partitions)


def _tasks(assignment: Any) -> str:
    kinds = (
        ("active", assignment.active_tasks),
        ("standby", assignment.standby_tasks),
        ("warmup", assignment.warmup_tasks),
    )
    counts = [
        f"{kind} " + " ".join(f"{task.subtopology_id}_{index}" for task in tasks for index in task.partitions)
        for kind, tasks in kinds
        if any(task.partitions for task in tasks)
    ]
    return ", ".join(counts)
