"""DeleteGroups: delete groups without members, with their offsets (KIP-229).

Versions 0 to 2. Answered when the tombstones are replicated. GROUP_ID_NOT_FOUND and NON_EMPTY_GROUP are set per group.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.tasks.yield_budget import YieldBudget
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(DeleteGroupsRequest, versions="0-2")
async def delete_groups(ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete each group."""
    results, turns = [], YieldBudget()
    for group_id in dict.fromkeys(request.groups_names):
        await turns.spend()
        results.append(DeletableGroupResult(group_id=group_id, error_code=await delete(ctx, group_id)))
    return DeleteGroupsResponse(results=results)


async def delete(ctx: RequestContext, group_id: str) -> ErrorCode:
    """Delete one group. Returns its error code."""
    try:
        authorize(ctx, Operation.DELETE, ResourceType.GROUP, group_id)
        await ctx.services.groups.delete(group_id)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
