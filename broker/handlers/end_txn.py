"""EndTxn: commit or abort a transaction (KIP-98).

Versions 0 to 5. Answered when the decision is replicated; the markers follow. A repeated request with the same decision
succeeds. From v5 the producer continues with the epoch in the response (KIP-890).
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.coordinators.transactions.transaction_requests import Producer
from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.broker.handlers.fencing import code_for
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from anabranch.protocol.errors import ErrorCode, KafkaError

FIRST_VERSION_WITH_PRODUCER_FENCED: Final = 2
FIRST_VERSION_WITH_EPOCH_BUMP: Final = 5


@handles(EndTxnRequest, versions="0-5")
async def end_txn(ctx: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """End the transaction."""
    producer = Producer(request.producer_id, request.producer_epoch)
    try:
        authorize(ctx, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        after = await ctx.services.transactions.end(
            request.transactional_id,
            producer,
            commit=request.committed,
            client_version=2 if ctx.version >= FIRST_VERSION_WITH_EPOCH_BUMP else 0,
        )
    except KafkaError as error:
        code = code_for(error, knows_fenced=ctx.version >= FIRST_VERSION_WITH_PRODUCER_FENCED)
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(error_code=ErrorCode.NONE, producer_id=after.id, producer_epoch=after.epoch)
