"""ConsumerGroupDescribe: describe the members, epochs and assignments of consumer groups (KIP-848).

Versions 0 to 1. Each group has its own error. A classic group, which DescribeGroups describes, is GROUP_ID_NOT_FOUND. A
group with a topic that the client may not describe is refused.
"""

from __future__ import annotations

from anabranch.broker.coordinators.classic_groups.group_responses import withheld_topics
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.described_groups import describe_groups
from anabranch.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


@handles(ConsumerGroupDescribeRequest, versions="0-1")
async def consumer_group_describe(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describe each group."""

    async def find(group_id: str) -> tuple[DescribedGroup, set[str]]:
        group = await ctx.services.groups.consumers.describe(group_id)
        if request.generation_aware:
            group.withheld = withheld_topics(ctx.services.groups.withheld(group_id))
        else:
            for member in group.members:
                member.holds_gates = False
        return group, _topics(group)

    enabled = ctx.services.has_consumer_groups
    groups = await describe_groups(ctx, request, DescribedGroup, find, enabled=enabled)
    return ConsumerGroupDescribeResponse(groups=groups)


def _topics(group: DescribedGroup) -> set[str]:
    topics = {
        row.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for row in assignment.topic_partitions
    }
    topics.update(name for member in group.members for name in member.subscribed_topic_names)
    return topics
