"""AlterPartitionReassignments: move replicas to other brokers, or call a move off (KIP-455).

Version 0. The controller decides and answers when the moves have begun; how far they are shows in
ListPartitionReassignments and in every replica list until then.
"""

from __future__ import annotations

from anabranch.broker import admin
from anabranch.broker.api import RequestContext, handles
from anabranch.broker.rights import demand
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


@handles(AlterPartitionReassignmentsRequest, versions="0")
async def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Let the active controller decide, here or elsewhere."""
    demand(ctx, Operation.ALTER, ResourceType.CLUSTER)
    return await admin.at_controller(
        ctx.services,
        request,
        lambda controller: controller.alter_partition_reassignments(request),
        timeout_ms=request.timeout_ms,
    )
