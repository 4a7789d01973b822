"""ExpireDelegationToken: end a token (KIP-48).

Versions 0 to 2. Only an authenticated client may ask for it, and no client of a PLAINTEXT listener is one.
"""

from __future__ import annotations

from anabranch.broker.api import RequestContext, handles
from anabranch.broker.handlers.create_delegation_token import NO_TIME
from anabranch.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from anabranch.protocol.errors import ErrorCode


@handles(ExpireDelegationTokenRequest, versions="0-2")
async def expire_delegation_token(
    ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Refuse."""
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME
    )
