"""RenewDelegationToken: use a token for longer (KIP-48).

Versions 0 to 2. Only an authenticated client may ask for it, and no client of a PLAINTEXT listener is one.
"""

from __future__ import annotations

from anabranch.broker.api import RequestContext, handles
from anabranch.broker.handlers.create_delegation_token import NO_TIME
from anabranch.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from anabranch.protocol.errors import ErrorCode


@handles(RenewDelegationTokenRequest, versions="0-2")
async def renew_delegation_token(
    ctx: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Refuse."""
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=NO_TIME
    )
