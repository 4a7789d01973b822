"""DescribeDelegationToken: which tokens there are (KIP-48, KIP-373).

Versions 0 to 3. Only an authenticated client may ask for it, and no client of a PLAINTEXT listener is one.
"""

from __future__ import annotations

from anabranch.broker.api import RequestContext, handles
from anabranch.protocol.apis.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from anabranch.protocol.errors import ErrorCode


@handles(DescribeDelegationTokenRequest, versions="0-3")
async def describe_delegation_token(
    ctx: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Refuse."""
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, tokens=[])
