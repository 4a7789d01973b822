"""DescribeGroups: describe the members and state of classic groups (KIP-345, KIP-430).

Versions 0 to 6. A missing group, or one that is not classic, is Dead without an error, as in Kafka, and from v6 on
GROUP_ID_NOT_FOUND (KIP-1043). Each group has its own error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from anabranch.broker.coordinators.classic_groups import group_responses as responses
from anabranch.broker.coordinators.classic_groups.classic_group import ClassicGroup
from anabranch.broker.dispatch.auth_helper import authorize, authorized_operations
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

FIRST_VERSION_THAT_MISSES_GROUPS: Final = 6


@handles(DescribeGroupsRequest, versions="0-6")
async def describe_groups(ctx: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each group."""
    groups = await YieldBudget().map(request.groups, lambda group_id: describe(ctx, group_id, request.generation_aware))
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = authorized_operations(ctx, ResourceType.GROUP, group.group_id)
    groups.sort(key=lambda one: one.error_code != ErrorCode.GROUP_AUTHORIZATION_FAILED)  # as Kafka: their rows first
    return DescribeGroupsResponse(groups=groups)


def describe(ctx: RequestContext, group_id: str, generation_aware: bool) -> DescribedGroup:
    """Return the row of one group."""
    try:
        authorize(ctx, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = ctx.services.groups.group(group_id)
    except KafkaError as error:
        return responses.describe_missing_group(group_id, error.code)
    if not isinstance(group, ClassicGroup):
        missing = ctx.version >= FIRST_VERSION_THAT_MISSES_GROUPS
        return responses.describe_missing_group(group_id, ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE)
    row = responses.describe_group(group, last_assignments=ctx.services.profile.shows_last_assignments)
    if generation_aware:
        add_gates(row, group, ctx.services.groups.withheld(group_id))
    return row


def add_gates(row: DescribedGroup, group: ClassicGroup, withheld: Mapping[tuple[str, int], str]) -> None:
    """Set the tagged fields for generation-aware clients; `withheld`: partitions not assigned -> reason."""
    for shown, member in zip(row.members, group.members, strict=True):
        shown.holds_gates = member.holds_gates
    row.withheld = responses.withheld_topics(withheld)
