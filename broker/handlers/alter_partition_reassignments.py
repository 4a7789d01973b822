"""AlterPartitionReassignments: move replicas to other brokers, or call a move off (KIP-455).

Versions 0 and 1; v1 may forbid that the number of replicas changes (KIP-860). The controller decides and answers when
the moves have begun; how far they are shows in ListPartitionReassignments and in every replica list until then.
"""

from __future__ import annotations

from anabranch.broker.administration import topic_creation
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


@handles(AlterPartitionReassignmentsRequest, versions="0-1")
async def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Let the active controller decide, here or elsewhere."""
    authorize(ctx, Operation.ALTER, ResourceType.CLUSTER)
    response: AlterPartitionReassignmentsResponse = await topic_creation.forward_to_controller(
        ctx.services,
        request,
        lambda controller: controller.alter_partition_reassignments(request),
        timeout_ms=request.timeout_ms,
    )
    response.allow_replication_factor_change = request.allow_replication_factor_change
    return response
