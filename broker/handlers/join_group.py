"""JoinGroup: join a group, or its next generation (KIP-62, KIP-345, KIP-394, KIP-814).

Versions 0 to 9. The response is sent when the join phase ends. From v4 a new dynamic member first gets its id
(MEMBER_ID_REQUIRED) and joins again with it. From v9 a returning static leader may be told to skip the assignment.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse


@handles(JoinGroupRequest, versions="0-9")
async def join_group(ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    """Join the group."""
    authorize(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
    return await ctx.services.groups.classic.join(
        request, version=ctx.version, client_id=ctx.client_id, client_host=f"/{ctx.peer.host}"
    )
