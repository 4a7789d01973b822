"""Only authenticated clients may request tokens, and see only their own."""

from __future__ import annotations

from typing import Any, cast

import pytest

from anabranch.broker.administration import token_requests
from anabranch.broker.authorization.authorizer import Authorizer
from anabranch.broker.authorization.peer import ANONYMOUS, Peer
from anabranch.broker.dispatch.request_context import RequestContext
from anabranch.controller.zk.token_znodes import Token
from anabranch.protocol.acls import Acl, Operation, Permission, ResourcePattern, ResourceType
from anabranch.protocol.errors import ErrorCode, KafkaError

TOKEN = Token("id", "User:owner", "User:requester", ("User:renewer",), 1, 2, 3)


class Node:
    """The services that are asked."""

    tokens = None

    def __init__(self) -> None:
        self.authorizer = Authorizer()


def asked_by(principal: str, protocol: str = "SASL_SSL", *, by_token: bool = False, node: Node | None = None) -> Any:
    peer = Peer("127.0.0.1", principal=principal, protocol=protocol, by_token=by_token)
    return RequestContext(cast("Any", node or Node()), 0, "c", peer)


@pytest.mark.parametrize(
    ("ctx", "code"),
    [
        (asked_by("User:a", "PLAINTEXT"), ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (asked_by(ANONYMOUS, "SSL"), ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (asked_by("User:a", by_token=True), ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (asked_by("User:CN=a", "SSL"), ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (asked_by("User:a", "SASL_PLAINTEXT"), ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
    ],
)
def test_token_request_of_ineligible_principal_is_refused(ctx: RequestContext, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        token_requests.tokens_for(ctx)
    assert refused.value.code is code


def test_token_is_visible_to_its_principals_and_by_acl() -> None:
    users = {
        name: token_requests.may_see(asked_by(f"User:{name}"), TOKEN) for name in ("owner", "requester", "renewer")
    }
    assert set(users.values()) == {True}
    assert not token_requests.may_see(asked_by("User:stranger"), TOKEN)
    for kind, name, operation in (
        (ResourceType.DELEGATION_TOKEN, "id", Operation.DESCRIBE),
        (ResourceType.USER, "User:owner", Operation.DESCRIBE_TOKENS),
    ):
        node = Node()
        entry = Acl("User:stranger", "*", operation, Permission.ALLOW)
        node.authorizer.replace(ResourcePattern(kind, name), [entry])
        assert token_requests.may_see(asked_by("User:stranger", node=node), TOKEN)


def test_named_principals_ask_for_tokens_that_they_own_requested_or_may_renew() -> None:
    asked = {name: token_requests.is_requested(TOKEN, {"User:x", f"User:{name}"}) for name in ("owner", "requester")}
    assert asked == {"owner": True, "requester": True} and token_requests.is_requested(TOKEN, {"User:renewer"})
    assert token_requests.is_requested(TOKEN, None)
    assert not token_requests.is_requested(TOKEN, {"User:stranger"}) and not token_requests.is_requested(TOKEN, set())


def test_principal_is_split_into_type_and_name() -> None:
    assert token_requests.halves("User:CN=a:b") == ("User", "CN=a:b")
