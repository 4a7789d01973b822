"""CreateDelegationToken: create a delegation token for the client or another owner (KIP-48, KIP-373).

Versions 0 to 3; v3 names an owner. The client must be authenticated, but not by a delegation token.
"""

from __future__ import annotations

from anabranch.broker.administration import token_requests
from anabranch.broker.administration.token_requests import NO_TIME, USER, halves
from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.broker.dispatch.request_context import RequestContext, handles
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.apis.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from anabranch.protocol.errors import ErrorCode, KafkaError


@handles(CreateDelegationTokenRequest, versions="0-3")
async def create_delegation_token(
    ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Create the token."""
    requester = ctx.peer.principal
    owner = requester
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
    kind, name = halves(owner)
    requester_type, requester_name = halves(requester)
    answer = CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
        token_id="",
        hmac=b"",
    )
    try:
        token_requests.check_allowed(ctx)
        if owner != requester and not is_authorized(ctx, Operation.CREATE_TOKENS, ResourceType.USER, owner):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, f"{requester} may not act for {owner}")
        if any(one.principal_type != USER for one in request.renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, "a renewer must be a User")
        tokens = token_requests.require_tokens(ctx)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    renewers = tuple(f"{one.principal_type}:{one.principal_name}" for one in request.renewers)
    token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    answer.issue_timestamp_ms = token.issued_ms
    answer.expiry_timestamp_ms = token.expires_ms
    answer.max_timestamp_ms = token.max_ms
    answer.token_id = token.token_id
    answer.hmac = tokens.hmac_of(token.token_id)
    return answer
