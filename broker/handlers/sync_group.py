"""SyncGroup: the leader brings everybody's assignment, the others fetch theirs (KIP-345, KIP-559).

Versions 0 to 5. The answer comes when the leader's assignment is stored. While the group is being loaded the answer is
REBALANCE_IN_PROGRESS, which makes the member join again.
"""

from __future__ import annotations

from broker.api import RequestContext, handles
from protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse


@handles(SyncGroupRequest, versions="0-5")
async def sync_group(ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    """Sync."""
    return await ctx.services.groups.sync(request)
