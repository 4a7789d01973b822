"""ListPartitionReassignments: which replicas are being added and removed where (KIP-455).

Version 0. Answered from the active controller's state, here or elsewhere.
"""

from __future__ import annotations

from anabranch.broker.administration import topic_creation
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(ListPartitionReassignmentsRequest, versions="0")
async def list_partition_reassignments(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Ask the active controller."""
    authorize(ctx, Operation.DESCRIBE, ResourceType.CLUSTER)
    return await topic_creation.forward_to_controller(
        ctx.services,
        request,
        lambda controller: controller.list_partition_reassignments(request),
        timeout_ms=request.timeout_ms,
    )
