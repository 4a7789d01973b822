"""CreateDelegationToken: a token to authenticate with (KIP-48, KIP-373).

Versions 0 to 3; v3 names an owner. Only an authenticated client may ask for one, and no client of a PLAINTEXT
listener is one.
"""

from __future__ import annotations

from typing import Final

from anabranch.broker.api import RequestContext, handles
from anabranch.protocol.apis.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from anabranch.protocol.errors import ErrorCode

USER: Final = "User"
ANONYMOUS: Final = "ANONYMOUS"
NO_TIME: Final = -1


@handles(CreateDelegationTokenRequest, versions="0-3")
async def create_delegation_token(
    ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Refuse."""
    owner = (request.owner_principal_type or "", request.owner_principal_name)
    owner_type, owner_name = owner if owner[1] else (USER, ANONYMOUS)
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=owner_type,
        principal_name=owner_name or ANONYMOUS,
        token_requester_principal_type=USER,
        token_requester_principal_name=ANONYMOUS,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
        token_id="",
        hmac=b"",
    )
