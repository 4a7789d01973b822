"""ShareGroupDescribe: describe the members, epochs and assignments of share groups (KIP-932).

Version 1. A group of another type is GROUP_ID_NOT_FOUND. One with a topic that the client may not describe is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.broker.coordinators.share_groups.share_administration import describe
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.described_groups import describe_groups
from anabranch.protocol.apis.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@handles(ShareGroupDescribeRequest, versions="1")
async def share_group_describe(ctx: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Describe each group."""

    async def find(group_id: str) -> tuple[DescribedGroup, Iterable[str]]:
        group, topics = await ctx.services.groups.sharers.group(group_id)
        return describe(group, topics), group.subscribed_topics()

    enabled = ctx.services.has_share_groups
    return ShareGroupDescribeResponse(groups=await describe_groups(ctx, request, DescribedGroup, find, enabled=enabled))
