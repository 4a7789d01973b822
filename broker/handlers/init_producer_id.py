"""InitProducerId: a producer id for an idempotent producer (KIP-98, KIP-360).

Versions 0 to 5. Without a transactional id any broker answers, always with a fresh id and epoch 0, even if the producer
names the id it had. Transactions are not served yet: a transactional id is refused with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients report at once instead of retrying for ever.
"""

from __future__ import annotations

from broker.api import RequestContext, handles
from protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.errors import ErrorCode, KafkaError


@handles(InitProducerIdRequest, versions="0-5")
async def init_producer_id(ctx: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Draw an id."""
    try:
        if request.transactional_id == "":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is null or has at least one character")
        if request.transactional_id is not None:
            ctx.services.log.info("refusing transactional id %r: no transactions here", request.transactional_id)
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch are both given or both not")
        producer_id = await ctx.services.producer_ids.draw()
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)
