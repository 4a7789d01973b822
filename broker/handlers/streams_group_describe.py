"""StreamsGroupDescribe: members, tasks and topology of groups of Kafka Streams (KIP-1071).

Version 0. Each group is answered, or refused, alone: GROUP_ID_NOT_FOUND also for one of another kind. A group with a
topic that the client may not describe is not shown at all.
"""

from __future__ import annotations

from anabranch.broker.coordinators.streams_groups.configured_topology import required_topics
from anabranch.broker.coordinators.streams_groups.streams_administration import not_described
from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.described_groups import described_groups
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(StreamsGroupDescribeRequest, versions="0")
async def streams_group_describe(
    ctx: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Describe each."""
    return StreamsGroupDescribeResponse(groups=await described_groups(ctx, request, describe))


async def describe(ctx: RequestContext, group_id: str) -> DescribedGroup:
    """The row of one group."""
    try:
        if not ctx.services.has_streams_groups:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        authorize(ctx, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group, row = await ctx.services.groups.streamers.group(group_id)
    except KafkaError as error:
        return not_described(group_id, error.code, error.message)
    names = required_topics(() if group.topology is None else group.topology.subtopologies)
    if all(is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
        return row
    return not_described(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the group has a topic that is not shown")
