"""ListGroups: the groups that this broker coordinates (KIP-518, KIP-848).

Versions 0 to 5. v4 filters by state, v5 by type: "classic", "consumer" if the broker assigns, "share", or "streams". A
group that is still being loaded is missing, and the error COORDINATOR_LOAD_IN_PROGRESS says so.
"""

from __future__ import annotations

from anabranch.broker.api import RequestContext, handles
from anabranch.broker.coordinators.classic_group import Group
from anabranch.broker.coordinators.shards import AnyGroup
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.broker.rights import may
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from anabranch.protocol.errors import ErrorCode


@handles(ListGroupsRequest, versions="0-5")
async def list_groups(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """List those that pass the filters."""
    coordinator = ctx.services.groups
    everything = may(ctx, Operation.DESCRIBE, ResourceType.CLUSTER)
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    groups = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=type_of(group),
        )
        for group in coordinator.groups()
        if (everything or may(ctx, Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
        and (not states or group.state.value.lower() in states)
        and (not types or type_of(group) in types)
    ]
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.loading else ErrorCode.NONE
    return ListGroupsResponse(error_code=error, groups=groups)


def type_of(group: AnyGroup) -> str:
    """Kafka's name of a kind of groups."""
    if isinstance(group, ShareGroup | StreamsGroup):
        return group.protocol_type
    return "classic" if isinstance(group, Group) else "consumer"
