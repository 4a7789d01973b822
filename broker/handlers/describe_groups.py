"""DescribeGroups: members and state of groups (KIP-345, KIP-430).

Versions 0 to 6. A group that does not exist is Dead, without an error, as Kafka answers it, and GROUP_ID_NOT_FOUND from
v6 on (KIP-1043); so is one whose broker assigns, which ConsumerGroupDescribe tells of. What a client may not describe
is refused alone.
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
    return DescribeGroupsResponse(groups=groups)


def describe(ctx: RequestContext, group_id: str, generation_aware: bool) -> DescribedGroup:
    """The row of one group."""
    try:
        authorize(ctx, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = ctx.services.groups.group(group_id)
    except KafkaError as error:
        return responses.not_described(group_id, error.code)
    if not isinstance(group, ClassicGroup):
        missing = ctx.version >= FIRST_VERSION_THAT_MISSES_GROUPS
        return responses.not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE)
    row = responses.described(group, last_assignments=ctx.services.profile.shows_last_assignments)
    if generation_aware:
        add_gates(row, group, ctx.services.groups.withheld(group_id))
    return row


def add_gates(row: DescribedGroup, group: ClassicGroup, withheld: Mapping[tuple[str, int], str]) -> None:
    """Fill in the tagged fields that generation-aware clients read; `withheld`: partitions not assigned, and why."""
    for shown, member in zip(row.members, group.members, strict=True):
        shown.holds_gates = member.holds_gates
    row.withheld = responses.withheld_topics(withheld)
