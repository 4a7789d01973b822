"""AlterPartitionReassignments: move replicas to other brokers, or cancel a move (KIP-455).

Versions 0 and 1; v1 may forbid changes of the replication factor (KIP-860). The controller answers when the moves have
started. ListPartitionReassignments and the replica lists show them until they end.
"""

from __future__ import annotations

from anabranch.broker.administration import topic_creation
from anabranch.broker.dispatch.auth_helper import authorize_client
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
    """Forward the request to the active controller."""
    authorize_client(ctx, Operation.ALTER, ResourceType.CLUSTER)
    response: AlterPartitionReassignmentsResponse = await topic_creation.forward_to_controller(
        ctx.services,
        request,
        lambda controller: controller.alter_partition_reassignments(request),
        timeout_ms=request.timeout_ms,
    )
    response.allow_replication_factor_change = request.allow_replication_factor_change
    return response
