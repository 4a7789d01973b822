"""ConsumerGroupPosition: exchange positions in a group, or wait for its commits (KIP-253 section 7, with R9 and R10).

v0 is the KIP's exchange of reported positions. v1 is a long poll that returns *committed* offsets. It is answered when
an awaited partition is committed up to its `awaited_offset`, or after `max_wait_ms`. If the assignment becomes invalid,
it is answered with REBALANCE_IN_PROGRESS. An unknown offset is -1.
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
