"""ExpireDelegationToken: set an earlier end of a delegation token, or end it at once (KIP-48).

Versions 0 to 2. The owner and the renewers may expire a token; a requester who is neither may not.
"""

from __future__ import annotations

from anabranch.broker.administration.token_requests import NO_TIME, tokens_for
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(ExpireDelegationTokenRequest, versions="0-2")
async def expire_delegation_token(
    ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Expire the token."""
    try:
        tokens = tokens_for(ctx)
        ends_ms = await tokens.expire(bytes(request.hmac), ctx.peer.principal, request.expiry_time_period_ms)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIME)
    return ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=ends_ms)
