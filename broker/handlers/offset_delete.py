"""OffsetDelete: delete committed offsets of a group that remains in use (KIP-496).

Version 0. A missing partition is UNKNOWN_TOPIC_OR_PARTITION, one of a topic that members consume is
GROUP_SUBSCRIBED_TO_TOPIC; one without a committed offset succeeds. With an error of the group there are no partitions.
"""

from __future__ import annotations

import asyncio

from anabranch.broker.coordinators.offsets.committed_offsets import TopicPartition
from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles, refuse_if_lost
from anabranch.broker.handlers.refused_rows import refused_first
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(OffsetDeleteRequest, versions="0")
async def offset_delete(ctx: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Delete the valid offsets; answered when the deletion is replicated."""
    services, turns = ctx.services, YieldBudget()
    authorize(ctx, Operation.DELETE, ResourceType.GROUP, request.group_id)
    requested: dict[TopicPartition, None] = {}
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        allowed = is_authorized(ctx, Operation.READ, ResourceType.TOPIC, topic.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        known = services.metadata.topic(topic.name) if allowed else None
        for one in topic.partitions:
            requested[topic.name, one.partition_index] = None
            if known is None or one.partition_index not in known.partitions:
                refused[topic.name, one.partition_index] = code
            if turns.is_spent():
                await asyncio.sleep(0)
    try:
        if request.group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        existing = [one for one in requested if one not in refused]
        offsets = services.groups.offsets
        consumed = await offsets.delete_unconsumed(request.group_id, existing, lambda: refuse_if_lost(ctx))
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code, topics=[])
    errors = refused | dict.fromkeys(consumed, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    rows = []
    for name, indexes in refused_first(requested, refused).items():
        if turns.is_spent(len(indexes)):
            await asyncio.sleep(0)
        partitions = [
            OffsetDeleteResponsePartition(partition_index=index, error_code=errors.get((name, index), ErrorCode.NONE))
            for index in indexes
        ]
        rows.append(OffsetDeleteResponseTopic(name=name, partitions=partitions))
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=rows)
