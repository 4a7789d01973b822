"""Common checks of delegation token requests: authentication, authorization, principals.

Sources: `KafkaApis.allowTokenRequests`, `DelegationTokenManager.filterToken`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.broker.authorization.peer import ANONYMOUS
from anabranch.broker.dispatch.auth_helper import is_authorized
from anabranch.protocol.acls import Operation, ResourceType
from anabranch.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from anabranch.broker.credentials.delegation_tokens import Tokens
    from anabranch.broker.dispatch.request_context import RequestContext
    from anabranch.controller.zk.token_znodes import Token

USER: Final = "User"
NO_TIME: Final = -1


def check_allowed(ctx: RequestContext) -> None:
    """Raise KafkaError for a client that is not authenticated, or authenticated with a token."""
    peer = ctx.peer
    unknown = peer.protocol == "PLAINTEXT" or (peer.protocol == "SSL" and peer.principal == ANONYMOUS)
    if unknown or peer.by_token:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "Delegation Token requests are not allowed")


def tokens_for(ctx: RequestContext) -> Tokens:
    """The node's tokens, if the client may make token requests. Raises KafkaError."""
    check_allowed(ctx)
    return require_tokens(ctx)


def require_tokens(ctx: RequestContext) -> Tokens:
    """The node's tokens. Raises KafkaError if delegation tokens are not enabled."""
    tokens = ctx.services.tokens
    if tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation Token feature is not enabled")
    return tokens


def is_requested(token: Token, owners: set[str] | None) -> bool:
    """Whether a request that names these owners asks for a token: one of them is its owner, requester or renewer."""
    return owners is None or not owners.isdisjoint((token.owner, token.requester, *token.renewers))


def may_see(ctx: RequestContext, token: Token) -> bool:
    """Whether the client may describe a token: as its owner, requester or renewer, or by an ACL."""
    if is_requested(token, {ctx.peer.principal}):
        return True
    return is_authorized(ctx, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id) or is_authorized(
        ctx, Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner
    )


def halves(principal: str) -> tuple[str, str]:
    """Split a principal into type and name."""
    kind, _, name = principal.partition(":")
    return kind, name
