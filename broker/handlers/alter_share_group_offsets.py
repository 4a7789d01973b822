"""AlterShareGroupOffsets: set the start offsets of a share group without members (KIP-932).

Version 0. A new incarnation of the group begins in these partitions, without the outcomes of records. Source: Kafka's
`GroupCoordinatorService.alterShareGroupOffsets`.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.find_coordinator import create_internal_topic
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.internal_topics import SHARE_STATE_TOPIC
from anabranch.protocol.wire import ZERO_UUID


@handles(AlterShareGroupOffsetsRequest, versions="0")
async def alter_share_group_offsets(
    ctx: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Set the start offsets in each topic."""
    try:
        if not ctx.services.has_share_groups:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        authorize(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group has a name")
        create = ctx.services.profile.alter_offsets_creates_share_groups
        ctx.services.groups.sharers.check_empty(request.group_id, create=create)
        if SHARE_STATE_TOPIC not in ctx.services.metadata.image.topics:
            await create_internal_topic(ctx.services, SHARE_STATE_TOPIC)
        topics = [await move(ctx, request.group_id, topic) for topic in request.topics]
    except KafkaError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message or None, responses=[])
    return AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=topics)


async def move(
    ctx: RequestContext, group_id: str, topic: AlterShareGroupOffsetsRequestTopic
) -> AlterShareGroupOffsetsResponseTopic:
    """Set the start offsets in one topic; return its rows. Raises KafkaError for the whole request."""
    known = ctx.services.metadata.topic(topic.topic_name)
    there = {} if known is None else known.partitions
    missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    refused = {one.partition_index: missing for one in topic.partitions if one.partition_index not in there}
    try:
        authorize(ctx, Operation.READ, ResourceType.TOPIC, topic.topic_name)
    except KafkaError as error:
        refused = {one.partition_index: error for one in topic.partitions}
    starts = {one.partition_index: one.start_offset for one in topic.partitions if one.partition_index not in refused}
    if known is not None and starts:
        refused |= await ctx.services.groups.sharers.move(
            group_id,
            known.topic_id,
            topic.topic_name,
            starts,
            create=ctx.services.profile.alter_offsets_creates_share_groups,
        )
    rows = []
    for one in topic.partitions:
        problem = refused.get(one.partition_index)
        rows.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=one.partition_index,
                error_code=ErrorCode.NONE if problem is None else problem.code,
                error_message=None if problem is None else problem.message or None,
            )
        )
    topic_id = ZERO_UUID if known is None else known.topic_id
    return AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, topic_id=topic_id, partitions=rows)
