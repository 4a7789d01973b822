"""UnregisterBroker: remove the registration of a broker (KIP-746).

Version 0. A registration ends with its ZooKeeper session, so a dead broker has none. A live one, which would register
again at once in Kafka, stays registered.
"""

from __future__ import annotations

from anabranch.broker.dispatch.auth_helper import authorize
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(UnregisterBrokerRequest, versions="0")
async def unregister_broker(ctx: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Check that the broker exists."""
    try:
        authorize(ctx, Operation.ALTER, ResourceType.CLUSTER)
        if request.broker_id not in ctx.services.metadata.image.brokers:
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
            )
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse(error_code=ErrorCode.NONE)
