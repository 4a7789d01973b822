"""OffsetDelete: delete committed offsets of a group that remains in use (KIP-496).

Version 0. A missing partition is UNKNOWN_TOPIC_OR_PARTITION, one of a topic that members consume is
GROUP_SUBSCRIBED_TO_TOPIC; one without a committed offset succeeds. With an error of the group there are no partitions.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.refused_rows import refused_first
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
    services = ctx.services
    requested = dict.fromkeys((topic.name, one.partition_index) for topic in request.topics for one in topic.partitions)
    authorize(ctx, Operation.DELETE, ResourceType.GROUP, request.group_id)
    errors = {
        one: ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for one in requested
        if not is_authorized(ctx, Operation.READ, ResourceType.TOPIC, one[0])
    }
    errors |= {
        one: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for one in requested
        if one not in errors and services.metadata.partition(*one) is None
    }
    existing = [one for one in requested if one not in errors]
    refused = set(errors)
    outcome, rows = ErrorCode.NONE, []
    try:
        if request.group_id == "":
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        consumed = await services.groups.offsets.delete_unconsumed(request.group_id, existing)
    except KafkaError as error:
        outcome = error.code
    else:
        errors |= dict.fromkeys(existing, ErrorCode.NONE)
        errors |= dict.fromkeys(consumed, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        rows = [
            OffsetDeleteResponseTopic(
                name=name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=index, error_code=errors[name, index])
                    for index in indexes
                ],
            )
            for name, indexes in refused_first(requested, refused).items()
        ]
    return OffsetDeleteResponse(error_code=outcome, topics=rows)
