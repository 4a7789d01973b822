"""RenewDelegationToken: extend the lifetime of a delegation token (KIP-48).

Versions 0 to 2. The owner and the renewers may renew a token; a requester who is neither may not.
"""

from __future__ import annotations

from anabranch.broker.administration.token_requests import NO_TIME, tokens_for
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(RenewDelegationTokenRequest, versions="0-2")
async def renew_delegation_token(
    ctx: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Renew the token."""
    try:
        tokens = tokens_for(ctx)
        ends_ms = await tokens.renew(bytes(request.hmac), ctx.peer.principal, request.renew_period_ms)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIME)
    return RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=ends_ms)
