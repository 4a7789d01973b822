"""ConsumerGroupDescribe: members, epochs and assignments of consumer groups (KIP-848).

Versions 0 to 1. Each group is answered, or refused, alone: GROUP_ID_NOT_FOUND also for one of the classic protocol,
which DescribeGroups tells of. A group with a topic that the client may not describe is not shown at all.
"""

from __future__ import annotations

from functools import partial

from anabranch.broker.coordinators.classic_groups.group_responses import withheld_topics
from anabranch.broker.coordinators.consumer_groups.administration import not_described
from anabranch.broker.dispatch.auth_helper import authorize, is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.described_groups import described_groups
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(ConsumerGroupDescribeRequest, versions="0-1")
async def consumer_group_describe(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each."""
    return ConsumerGroupDescribeResponse(
        groups=await described_groups(ctx, request, partial(describe, generation_aware=request.generation_aware))
    )


async def describe(ctx: RequestContext, group_id: str, *, generation_aware: bool) -> DescribedGroup:
    """The row of one group."""
    try:
        if not ctx.services.has_consumer_groups:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        authorize(ctx, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = await ctx.services.groups.consumers.describe(group_id)
        if generation_aware:
            group.withheld = withheld_topics(ctx.services.groups.withheld(group_id))
        else:
            for member in group.members:
                member.holds_gates = False
    except KafkaError as error:
        return not_described(group_id, error.code, error.message)
    topics = {
        row.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for row in assignment.topic_partitions
    }
    topics.update(name for member in group.members for name in member.subscribed_topic_names)
    if all(is_authorized(ctx, Operation.DESCRIBE, ResourceType.TOPIC, name) for name in topics):
        return group
    return not_described(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "the group has a topic that is not shown")
