"""ListPartitionReassignments: list the replicas that reassignments are adding and removing (KIP-455).

Version 0. The response comes from the active controller's state.
"""

from __future__ import annotations

from anabranch.broker.administration import topic_creation
from anabranch.broker.dispatch.auth_helper import authorize_client
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
    """Forward the request to the active controller."""
    authorize_client(ctx, Operation.DESCRIBE, ResourceType.CLUSTER)
    return await topic_creation.forward_to_controller(
        ctx.services,
        request,
        lambda controller: controller.list_partition_reassignments(request),
        timeout_ms=request.timeout_ms,
    )
