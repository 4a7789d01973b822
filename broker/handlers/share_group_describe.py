"""ShareGroupDescribe: members, epochs and assignments of groups that share partitions (KIP-932).

Version 1. Each group is answered, or refused, alone: GROUP_ID_NOT_FOUND also for one of another kind. A group with a
topic that the client may not describe is not shown at all.
"""

from __future__ import annotations

from anabranch.broker.coordinators.share_groups.share_administration import described, not_described
from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.described_groups import described_groups
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(ShareGroupDescribeRequest, versions="1")
async def share_group_describe(ctx: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Describe each."""
    return ShareGroupDescribeResponse(groups=await described_groups(ctx, request, describe))


async def describe(ctx: RequestContext, group_id: str) -> DescribedGroup:
    """The row of one group."""
    try:
        if not ctx.services.has_share_groups:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        authorize(ctx, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group, topics = await ctx.services.groups.sharers.group(group_id)
    except KafkaError as error:
        return not_described(group_id, error.code, error.message)
    if all(is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in group.subscribed_topics()):
        return described(group, topics)
    return not_described(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the group has a topic that is not shown")
