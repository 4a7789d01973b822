"""ListPartitionReassignments: which replicas are being added and removed where (KIP-455).

Version 0. Answered from the active controller's state, here or elsewhere.
"""

from __future__ import annotations

from anabranch.broker import admin
from anabranch.broker.api import RequestContext, handles
from anabranch.broker.rights import demand
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
    demand(ctx, Operation.DESCRIBE, ResourceType.CLUSTER)
    return await admin.at_controller(
        ctx.services,
        request,
        lambda controller: controller.list_partition_reassignments(request),
        timeout_ms=request.timeout_ms,
    )
