"""LeaveGroup: members go without waiting for their sessions to end (KIP-345, KIP-800).

Versions 0 to 5. From v3 one request names several members and each has its own error; before, the member's error is on
top.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse


@handles(LeaveGroupRequest, versions="0-5")
async def leave_group(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Leave."""
    authorize(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
    return await ctx.services.groups.leave(request, version=ctx.version)
