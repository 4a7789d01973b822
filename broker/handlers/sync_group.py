"""SyncGroup: store the assignment from the group's leader, and return each member's own (KIP-345, KIP-559).

Versions 0 to 5; from v5 a member sends the protocol that it expects. The response is sent when the assignment is
stored. While the group is being loaded the response is REBALANCE_IN_PROGRESS, after which the member joins again.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

FIRST_VERSION_WITH_PROTOCOL: Final = 5


@handles(SyncGroupRequest, versions="0-5")
async def sync_group(ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Exchange the assignment."""
    authorize(ctx, Operation.READ, ResourceType.GROUP, request.group_id)
    if ctx.version >= FIRST_VERSION_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the protocol is missing")
    return await ctx.services.groups.classic.sync(request)
