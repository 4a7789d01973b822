"""DescribeDelegationToken: list delegation tokens with their secrets (KIP-48, KIP-373).

Versions 0 to 3. A client sees its own tokens, those that it requested or may renew, and those it may describe.
"""

from __future__ import annotations

from anabranch.broker.administration import token_requests
from anabranch.broker.administration.token_requests import halves
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.apis.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(DescribeDelegationTokenRequest, versions="0-3")
async def describe_delegation_token(
    ctx: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """List the tokens that the named principals own, requested or may renew, or all."""
    try:
        tokens = token_requests.tokens_for(ctx)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code, tokens=[])
    owners = (
        None if request.owners is None else {f"{one.principal_type}:{one.principal_name}" for one in request.owners}
    )
    found = []
    for token in tokens.all:
        if not (token_requests.is_requested(token, owners) and token_requests.may_see(ctx, token)):
            continue
        kind, name = halves(token.owner)
        requester_type, requester_name = halves(token.requester)
        found.append(
            DescribedDelegationToken(
                principal_type=kind,
                principal_name=name,
                token_requester_principal_type=requester_type,
                token_requester_principal_name=requester_name,
                issue_timestamp=token.issued_ms,
                expiry_timestamp=token.expires_ms,
                max_timestamp=token.max_ms,
                token_id=token.token_id,
                hmac=tokens.hmac_of(token.token_id),
                renewers=[
                    DescribedDelegationTokenRenewer(principal_type=halves(one)[0], principal_name=halves(one)[1])
                    for one in token.renewers
                ],
            )
        )
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=found)
