"""LeaveGroup: remove members from a group before their sessions expire (KIP-345, KIP-800).

Versions 0 to 5. From v3 a request names several members, each with its own error; before, the error is at the top.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse


@handles(LeaveGroupRequest, versions="0-5")
async def leave_group(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove the members."""
    authorize(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
    return await ctx.services.groups.classic.leave(request, version=ctx.version)
