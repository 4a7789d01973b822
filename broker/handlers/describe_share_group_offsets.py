"""DescribeShareGroupOffsets: describe the start offsets and lags of share groups (KIP-932, KIP-1226).

Versions 0 to 1. A partition without a state has start offset -1. The lag is -1 if the leader does not report the end of
its log. Source: Kafka's `GroupCoordinatorService.describeShareGroupOffsets`.
"""

from __future__ import annotations

import asyncio

from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.wire import ZERO_UUID

UNKNOWN = -1
TOGETHER = 100
"""How many partitions are described at once."""


@handles(DescribeShareGroupOffsetsRequest, versions="0-1")
async def describe_share_group_offsets(
    ctx: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Describe each group."""
    return DescribeShareGroupOffsetsResponse(groups=[await describe(ctx, group) for group in request.groups])


async def describe(
    ctx: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    """Return the row of one group."""
    try:
        if not ctx.services.has_share_groups:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        authorize(ctx, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        topics = await topics_of(ctx, group.group_id) if group.topics is None else group.topics
        rows = await describe_topics(ctx, group.group_id, topics)
    except KafkaError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, topics=[], error_code=error.code, error_message=error.message or None
        )
    return DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=rows, error_code=ErrorCode.NONE)


async def topics_of(ctx: RequestContext, group_id: str) -> list[DescribeShareGroupOffsetsRequestTopic]:
    """Return all partitions in which a group has a state; none for a missing group. Raises KafkaError.

    A removed partition keeps its state in case the topic grows again, but is not included.
    """
    try:
        group, topics = await ctx.services.groups.sharers.group(group_id)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return []
    rows = []
    for topic_id, initialized in group.initialized.items():
        name = topics.name_of(topic_id)
        known = None if name is None else ctx.services.metadata.topic(name)
        if known is not None and is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, known.name):
            there = sorted(one for one in initialized if one in known.partitions)
            rows.append(DescribeShareGroupOffsetsRequestTopic(topic_name=known.name, partitions=there))
    return rows


async def describe_topics(
    ctx: RequestContext, group_id: str, topics: list[DescribeShareGroupOffsetsRequestTopic]
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    """Return the rows of topics. Share coordinators are asked about many partitions at once: some may not answer."""
    asked = [(topic.topic_name, index) for topic in topics for index in topic.partitions]
    found: list[DescribeShareGroupOffsetsResponsePartition] = []
    while len(found) < len(asked):
        some = asked[len(found) : len(found) + TOGETHER]
        found += await asyncio.gather(*(describe_partition(ctx, group_id, *one) for one in some))
    rows = iter(found)
    return [
        DescribeShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name,
            topic_id=ZERO_UUID if known is None else known.topic_id,
            partitions=[next(rows) for _ in topic.partitions],
        )
        for topic in topics
        for known in (ctx.services.metadata.topic(topic.topic_name),)
    ]


async def describe_partition(
    ctx: RequestContext, group_id: str, topic: str, index: int
) -> DescribeShareGroupOffsetsResponsePartition:
    """Return the row of one partition."""
    known = ctx.services.metadata.topic(topic)
    row = DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=UNKNOWN, leader_epoch=0, error_code=ErrorCode.NONE
    )
    try:
        authorize(ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic)
        if known is not None and index not in known.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        state = None if known is None else await ctx.services.groups.sharers.standing(group_id, known.topic_id, index)
        if state is not None:
            row.start_offset, row.leader_epoch = state.start_offset, max(state.leader_epoch, 0)
            row.lag = await lag(ctx, topic, index, state.start_offset, state.delivery_complete_count)
    except KafkaError as error:
        row.error_code, row.error_message = error.code, error.message or None
    return row


async def lag(ctx: RequestContext, topic: str, index: int, start: int, complete_count: int) -> int:
    """Return the number of remaining records; -1 if it is unknown."""
    end = None if start == UNKNOWN else await ctx.services.shares.ends.end(topic, index)
    return UNKNOWN if end is None else max(end - max(start, 0) - max(complete_count, 0), 0)
