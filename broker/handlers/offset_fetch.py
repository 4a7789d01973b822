"""OffsetFetch: return the committed offsets of groups (KIP-320, KIP-447, KIP-709).

Versions 0 to 10. From v8 a request names several groups, from v10 topics by id; null topics (from v2) mean all
committed ones. A missing partition or group is no error: its offset is -1. With `require_stable` (from v7) a partition
with a pending transactional commit is UNSTABLE_OFFSET_COMMIT. From v9 a member of a KIP-848 group sends its epoch. v1
has the group's error only in the partitions. v0 reads from ZooKeeper (`zookeeper_offsets`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from anabranch.broker.coordinators.offsets.committed_offsets import NO_LEADER_EPOCH, UNKNOWN_OFFSET, Offsets
from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers import zookeeper_offsets
from anabranch.broker.handlers.topic_ids import name_them
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.wire import ZERO_UUID

FIRST_VERSION_WITH_GROUP_ERROR: Final = 2
FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
Topics = Iterable[tuple[str, list[int]]]
Shown = TypeVar("Shown")
Row = tuple[int, int, int, str, ErrorCode]
"""Partition, committed offset, leader epoch, metadata, error."""


@handles(OffsetFetchRequest, versions="0-10")
async def offset_fetch(ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return the offsets of each group."""
    if ctx.version == 0:
        return await zookeeper_offsets.fetch(ctx, request)
    if ctx.version >= 8:
        answer = answer_by_id if ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS else answer_group
        groups = await YieldBudget().map(request.groups, lambda group: answer(ctx, group, request.require_stable))
        return OffsetFetchResponse(groups=groups)
    error, found = look_up(ctx, request.group_id, request.topics, request.require_stable)
    if error is not ErrorCode.NONE and ctx.version >= FIRST_VERSION_WITH_GROUP_ERROR:
        found = []
    if error is ErrorCode.GROUP_AUTHORIZATION_FAILED and ctx.version < FIRST_VERSION_WITH_GROUP_ERROR:
        found = []  # an empty response, as in Kafka
    return OffsetFetchResponse(
        error_code=error,
        topics=[
            OffsetFetchResponseTopic(name=topic, partitions=make_rows(OffsetFetchResponsePartition, rows))
            for topic, rows in found
        ],
    )


def answer_by_id(ctx: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    """Return one group of a v10 request, which has topic ids."""
    image = ctx.services.metadata.image
    unknown: list[OffsetFetchRequestTopics] = []
    if group.topics is not None:
        group.topics, unknown = name_them(image, group.topics)
    response = answer_group(ctx, group, require_stable)
    for row in response.topics:
        row.topic_id = image.topics[row.name].topic_id if row.name in image.topics else ZERO_UUID
    response.topics = [row for row in response.topics if row.topic_id != ZERO_UUID]
    if response.error_code == ErrorCode.NONE:
        response.topics += [
            OffsetFetchResponseTopics(
                name="",
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=UNKNOWN_OFFSET,
                        metadata="",
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in unknown
        ]
    return response


def answer_group(ctx: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    """Return one group of a v8 request; an error excludes partitions."""
    error, found = look_up(
        ctx, group.group_id, group.topics, require_stable, member=(group.member_id, group.member_epoch)
    )
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=error,
        topics=[]
        if error is not ErrorCode.NONE
        else [
            OffsetFetchResponseTopics(name=topic, partitions=make_rows(OffsetFetchResponsePartitions, rows))
            for topic, rows in found
        ],
    )


def make_rows(partition: Callable[..., Shown], rows: list[Row]) -> list[Shown]:
    """Return the rows of a topic in the version's structure."""
    return [
        partition(
            partition_index=index,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            metadata=metadata,
            error_code=error,
        )
        for index, offset, leader_epoch, metadata, error in rows
    ]


def look_up(
    ctx: RequestContext,
    group_id: str,
    requested: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    require_stable: bool,
    member: tuple[str | None, int] = (None, -1),
) -> tuple[ErrorCode, list[tuple[str, list[Row]]]]:
    """Return the group's error, and the rows of each topic."""
    topics = None if requested is None else [(topic.name, topic.partition_indexes) for topic in requested]
    try:
        authorize(ctx, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        offsets = ctx.services.groups.offsets.offsets_of_member(group_id, *member)
    except KafkaError as refused:
        code = refused.code
        rows = [
            (name, [(one, UNKNOWN_OFFSET, NO_LEADER_EPOCH, "", code) for one in ones]) for name, ones in topics or ()
        ]
        return code, rows
    chosen = all_topics(offsets) if topics is None else topics
    if topics is not None and not ctx.services.profile.answers_like_a_quorum:
        chosen = once_each(topics)
    found: list[tuple[str, list[Row]]] = []
    unauthorized: list[tuple[str, list[Row]]] = []
    for name, indexes in chosen:
        if is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name):
            found.append((name, [row_of(offsets, name, index, require_stable) for index in indexes]))
        elif topics is not None:  # without named topics, hidden ones are left out
            hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            unauthorized.append((name, [(one, UNKNOWN_OFFSET, NO_LEADER_EPOCH, "", hidden) for one in indexes]))
    return ErrorCode.NONE, found + unauthorized


def once_each(topics: Topics) -> Topics:
    """Return the requested partitions without repetitions."""
    requested: dict[str, dict[int, None]] = {}
    for name, indexes in topics:
        requested.setdefault(name, {}).update(dict.fromkeys(indexes))
    return [(name, list(indexes)) for name, indexes in requested.items()]


def all_topics(offsets: Offsets) -> Topics:
    """Return all committed partitions of a group, by topic."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(offsets.committed):
        topics.setdefault(topic, []).append(index)
    return topics.items()


def row_of(offsets: Offsets, topic: str, index: int, require_stable: bool) -> Row:
    """Return the committed offset of one partition."""
    partition = (topic, index)
    if require_stable and offsets.unstable(partition):
        return index, UNKNOWN_OFFSET, NO_LEADER_EPOCH, "", ErrorCode.UNSTABLE_OFFSET_COMMIT
    known = offsets.committed.get(partition)
    if known is None:
        return index, UNKNOWN_OFFSET, NO_LEADER_EPOCH, "", ErrorCode.NONE
    return index, known.offset, known.leader_epoch, known.metadata, ErrorCode.NONE
