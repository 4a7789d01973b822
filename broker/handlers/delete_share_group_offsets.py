"""DeleteShareGroupOffsets: delete the topics of a share group without members (KIP-932).

Version 0. Source: Kafka's `GroupCoordinatorService.deleteShareGroupOffsets`.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.wire import ZERO_UUID


@handles(DeleteShareGroupOffsetsRequest, versions="0")
async def delete_share_group_offsets(
    ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Delete the group's state of each topic."""
    try:
        if not ctx.services.has_share_groups:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        authorize(ctx, Operation.DELETE, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group has a name")
        ctx.services.groups.sharers.check_empty(request.group_id)
        topics = [await forget(ctx, request.group_id, topic.topic_name) for topic in request.topics]
    except KafkaError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message or None, responses=[])
    return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, responses=topics)


async def forget(ctx: RequestContext, group_id: str, topic: str) -> DeleteShareGroupOffsetsResponseTopic:
    """Delete the state of one topic; return its row. Raises KafkaError for the whole request."""
    missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    row = DeleteShareGroupOffsetsResponseTopic(topic_name=topic, topic_id=ZERO_UUID, error_code=ErrorCode.NONE)
    try:
        authorize(ctx, Operation.READ, ResourceType.TOPIC, topic)
        known = ctx.services.metadata.topic(topic)
        if known is None:
            raise missing
    except KafkaError as error:
        row.error_code, row.error_message = error.code, error.message or None
        return row
    if await ctx.services.groups.sharers.forget(group_id, known.topic_id):
        row.topic_id = known.topic_id
    else:
        row.error_code, row.error_message = missing.code, missing.message
    return row
