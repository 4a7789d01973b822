"""AllocateProducerIds: allocate the next block of producer ids to a broker (KIP-730).

Version 0. The active controller allocates it in ZooKeeper for a broker that is registered with the request's broker
epoch; any other node answers NOT_CONTROLLER.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize_broker
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(AllocateProducerIdsRequest, versions="0")
async def allocate_producer_ids(
    ctx: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    """Pass the request to the controller of this node."""
    authorize_broker(ctx)
    controller = ctx.services.controller
    try:
        if controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        block = await controller.allocate_producer_ids(request)
    except KafkaError as refused:
        return AllocateProducerIdsResponse(error_code=refused.code, producer_id_start=0, producer_id_len=0)
    return AllocateProducerIdsResponse(
        error_code=ErrorCode.NONE, producer_id_start=block.first, producer_id_len=block.last - block.first + 1
    )
