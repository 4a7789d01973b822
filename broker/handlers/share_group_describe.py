"""ShareGroupDescribe: members, epochs and assignments of groups that share partitions (KIP-932).

Version 1. Each group is answered, or refused, alone: GROUP_ID_NOT_FOUND also for one of another kind. A group with a
topic that the client may not describe is not shown at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.broker.coordinators.share_groups.share_administration import described
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.described_groups import described_groups
from anabranch.protocol.apis.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@handles(ShareGroupDescribeRequest, versions="1")
async def share_group_describe(ctx: RequestContext, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """Describe each."""

    async def find(group_id: str) -> tuple[DescribedGroup, Iterable[str]]:
        group, topics = await ctx.services.groups.sharers.group(group_id)
        return described(group, topics), group.subscribed_topics()

    enabled = ctx.services.has_share_groups
    return ShareGroupDescribeResponse(
        groups=await described_groups(ctx, request, DescribedGroup, find, enabled=enabled)
    )
