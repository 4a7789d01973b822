"""AlterPartition: change the ISR of partitions for their leader (KIP-497, KIP-903).

Versions 0 to 3. The controller has all rules; any node but the active controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize_broker
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from anabranch.protocol.errors import ErrorCode


@handles(AlterPartitionRequest, versions="0-3")
async def alter_partition(ctx: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Pass the request to the controller of this node."""
    authorize_broker(ctx)
    controller = ctx.services.controller
    if controller is None:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=[])
    return await controller.alter_partition(request)
