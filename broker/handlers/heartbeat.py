"""Heartbeat: keep a member's session alive, and report a rebalance to the member (KIP-345).

Versions 0 to 4. While the group is being loaded every heartbeat succeeds, because sessions start again after the load.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse


@handles(HeartbeatRequest, versions="0-4")
async def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Renew the member's session."""
    authorize(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
    return await ctx.services.groups.classic.heartbeat(request)
