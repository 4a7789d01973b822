"""ConsumerGroupPosition: a member learns how far the others of its group are (KIP-253 section 7, with R9 and R10).

v0 is the KIP's exchange of reported positions. v1 tells *committed* offsets and waits: the answer comes when one of the
awaited partitions is committed up to its `awaited_offset`, after `max_wait_ms`, or with REBALANCE_IN_PROGRESS as soon
as the assignment no longer stands. Any offset that is not known is -1.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.consumer_group_position import ConsumerGroupPositionRequest, ConsumerGroupPositionResponse


@handles(ConsumerGroupPositionRequest, versions="0-1")
async def consumer_group_position(
    ctx: RequestContext, request: ConsumerGroupPositionRequest
) -> ConsumerGroupPositionResponse:
    """Exchange positions (v0), or wait for commits (v1)."""
    authorize(ctx, Operation.DESCRIBE, ResourceType.GROUP, request.group_id)
    return await ctx.services.groups.position(request, version=ctx.version)
