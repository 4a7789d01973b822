"""OffsetFetch: return the committed offsets of groups (KIP-320, KIP-447, KIP-709).

Versions 0 to 10. From v8 a request names several groups, from v10 topics by id; null topics (from v2) mean all
committed ones. A missing partition or group is no error: its offset is -1. With `require_stable` (from v7) a partition
with a pending transactional commit is UNSTABLE_OFFSET_COMMIT. From v9 a member of a KIP-848 group sends its epoch. v1
has the group's error only in the partitions. v0 reads from ZooKeeper (`zookeeper_offsets`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from anabranch.broker.coordinators.offsets.committed_offsets import UNKNOWN_OFFSET, CommittedOffset, Offsets
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
Rows = tuple[str, list[int], list[CommittedOffset], ErrorCode]
"""A topic, its partitions, the offset of each, and the error of all."""
NOTHING: Final = CommittedOffset(offset=UNKNOWN_OFFSET, commit_timestamp_ms=-1)
UNSTABLE: Final = CommittedOffset(offset=UNKNOWN_OFFSET, commit_timestamp_ms=-1)
"""Replaces the offset of a partition with a pending transactional commit."""


@handles(OffsetFetchRequest, versions="0-10")
async def offset_fetch(ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Return the offsets of each group."""
    if ctx.version == 0:
        return await zookeeper_offsets.fetch(ctx, request)
    turns = YieldBudget()
    if ctx.version >= 8:
        answer = answer_by_id if ctx.version >= FIRST_VERSION_WITH_TOPIC_IDS else answer_group
        groups = []
        for group in request.groups:
            if turns.is_spent():
                await asyncio.sleep(0)
            groups.append(await answer(ctx, group, request.require_stable, turns))
        return OffsetFetchResponse(groups=groups)
    error, found = look_up(ctx, request.group_id, request.topics, request.require_stable)
    if error is not ErrorCode.NONE and ctx.version >= FIRST_VERSION_WITH_GROUP_ERROR:
        found = []
    if error is ErrorCode.GROUP_AUTHORIZATION_FAILED and ctx.version < FIRST_VERSION_WITH_GROUP_ERROR:
        found = []  # an empty response, as in Kafka
    topics = []
    for rows in found:
        if turns.is_spent(len(rows[1])):
            await asyncio.sleep(0)
        topics.append(OffsetFetchResponseTopic(name=rows[0], partitions=make_rows(OffsetFetchResponsePartition, rows)))
    return OffsetFetchResponse(error_code=error, topics=topics)


async def answer_by_id(
    ctx: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool, turns: YieldBudget
) -> OffsetFetchResponseGroup:
    """Return one group of a v10 request, which has topic ids."""
    image = ctx.services.metadata.image
    unknown: list[OffsetFetchRequestTopics] = []
    if group.topics is not None:
        group.topics, unknown = name_them(image, group.topics)
    response = await answer_group(ctx, group, require_stable, turns)
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


async def answer_group(
    ctx: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool, turns: YieldBudget
) -> OffsetFetchResponseGroup:
    """Return one group of a v8 request; an error excludes partitions."""
    error, found = look_up(
        ctx, group.group_id, group.topics, require_stable, member=(group.member_id, group.member_epoch)
    )
    topics = []
    for rows in found if error is ErrorCode.NONE else ():
        if turns.is_spent(len(rows[1])):
            await asyncio.sleep(0)
        partitions = make_rows(OffsetFetchResponsePartitions, rows)
        topics.append(OffsetFetchResponseTopics(name=rows[0], partitions=partitions))
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error, topics=topics)


def make_rows(partition: Callable[..., Shown], rows: Rows) -> list[Shown]:
    """Return the rows of a topic in the version's structure."""
    _, indexes, offsets, code = rows
    return [
        partition(
            partition_index=index,
            committed_offset=known.offset,
            committed_leader_epoch=known.leader_epoch,
            metadata=known.metadata,
            error_code=code if known is not UNSTABLE else ErrorCode.UNSTABLE_OFFSET_COMMIT,
        )
        for index, known in zip(indexes, offsets, strict=True)
    ]


def look_up(
    ctx: RequestContext,
    group_id: str,
    requested: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None,
    require_stable: bool,
    member: tuple[str | None, int] = (None, -1),
) -> tuple[ErrorCode, list[Rows]]:
    """Return the group's error, and the rows of each topic: all offsets are those of one moment."""
    topics = None if requested is None else [(topic.name, topic.partition_indexes) for topic in requested]
    try:
        authorize(ctx, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        offsets = ctx.services.groups.offsets.offsets_of_member(group_id, *member)
    except KafkaError as refused:
        return refused.code, [(name, ones, [NOTHING] * len(ones), refused.code) for name, ones in topics or ()]
    chosen = all_topics(offsets) if topics is None else topics
    if topics is not None and not ctx.services.profile.answers_like_a_quorum:
        chosen = once_each(topics)
    found: list[Rows] = []
    unauthorized: list[Rows] = []
    for name, indexes in chosen:
        if is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name):
            found.append((name, indexes, offsets_of(offsets, name, indexes, require_stable), ErrorCode.NONE))
        elif topics is not None:  # without named topics, hidden ones are left out
            unauthorized.append((name, indexes, [NOTHING] * len(indexes), ErrorCode.TOPIC_AUTHORIZATION_FAILED))
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
    for topic, index in offsets.committed:
        topics.setdefault(topic, []).append(index)
    return [(name, sorted(topics[name])) for name in sorted(topics)]


def offsets_of(offsets: Offsets, topic: str, indexes: list[int], require_stable: bool) -> list[CommittedOffset]:
    """Return the committed offsets of these partitions."""
    committed = offsets.committed
    if require_stable and offsets.is_any_unstable:
        unstable = offsets.unstable
        return [UNSTABLE if unstable(one := (topic, index)) else committed.get(one, NOTHING) for index in indexes]
    return [committed.get((topic, index), NOTHING) for index in indexes]
