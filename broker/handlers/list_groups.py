"""ListGroups: list the groups that this broker coordinates (KIP-518, KIP-848).

Versions 0 to 5. v4 filters by state, v5 by type: "classic", "consumer" (KIP-848), "share" or "streams". Groups that are
still being loaded are missing, and the error is COORDINATOR_LOAD_IN_PROGRESS.

With the tag `readers_of` (ours), only groups are listed that have stock members reading the topic. A controller
requests them before a shrink, and must know whether the list is complete. The response therefore has the partitions of
`__consumer_offsets` that were searched, unless the client may not describe every group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.coordinators.groups.group_shards import AnyGroup
from anabranch.broker.coordinators.share_groups.share_group import ShareGroup
from anabranch.broker.coordinators.streams_groups.streams_group import StreamsGroup
from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.broker.coordinators.groups.group_coordinator import GroupCoordinator


@handles(ListGroupsRequest, versions="0-5")
async def list_groups(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """List the groups that match the filters."""
    coordinator = ctx.services.groups
    topic = request.readers_of
    everything = is_authorized(ctx, Operation.DESCRIBE, ResourceType.CLUSTER) or (
        topic != "" and is_authorized(ctx, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    )
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
        if (everything or is_authorized(ctx, Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
        and (not states or group.state.value.lower() in states)
        and (not types or type_of(group) in types)
    ]
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.loading else ErrorCode.NONE
    response = ListGroupsResponse(error_code=error, groups=groups)
    if topic:
        response.groups = [row for row in groups if read_without_gates(coordinator, row, topic)]
        response.coordinated = coordinator.coordinated if everything else []
    return response


def read_without_gates(coordinator: GroupCoordinator, row: ListedGroup, topic: str) -> bool:
    """Return whether stock members of a group read the topic; name them in the row."""
    group = coordinator.table.slots[row.group_id].group
    found = coordinator.stock_members(group, topic)
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        row.readers = f"{min(found)}{more}"
        row.protocol = group.protocol or "" if isinstance(group, ClassicGroup) else group.protocol_type
    return bool(found)


def type_of(group: AnyGroup) -> str:
    """Return Kafka's name of a group's type."""
    if isinstance(group, ShareGroup | StreamsGroup):
        return group.protocol_type
    return "classic" if isinstance(group, ClassicGroup) else "consumer"
