"""InitProducerId: assign an id and epoch to an idempotent or transactional producer (KIP-98, KIP-360).

Versions 0 to 5. Without a transactional id any broker returns a new id with epoch 0, even if the producer sends its
previous id. With one, its coordinator returns the next epoch, which fences the previous producer.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.coordinators.transactions.transaction_requests import Producer
from anabranch.broker.dispatch.auth_helper import authorize, is_authorized_for_any
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.fencing import code_for
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

NONE: Final = -1
FIRST_VERSION_WITH_PRODUCER_FENCED: Final = 4


@handles(InitProducerIdRequest, versions="0-5")
async def init_producer_id(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Draw a producer id, or request an epoch from the coordinator."""
    try:
        producer_id, epoch = await identity(ctx, request)
    except KafkaError as error:
        code = code_for(error, knows_fenced=ctx.version >= FIRST_VERSION_WITH_PRODUCER_FENCED)
        return InitProducerIdResponse(error_code=code, producer_id=NONE, producer_epoch=NONE)
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=epoch)


async def identity(ctx: RequestContext, request: InitProducerIdRequest) -> tuple[int, int]:
    """Return producer id and epoch. Raises KafkaError."""
    if request.transactional_id is not None:
        authorize(ctx, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    elif not is_authorized_for_any(ctx, Operation.WRITE, ResourceType.TOPIC):
        authorize(ctx, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch are both given or both not")
    if request.transactional_id is None:
        return await ctx.services.producer_ids.draw(), 0
    known = None if request.producer_id == NONE else Producer(request.producer_id, request.producer_epoch)
    return await ctx.services.transactions.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, known
    )
