"""Paths and bodies of delegation token znodes, as Kafka writes them.

They do not include a token's secret: each broker derives it from the token's id. Sources: `DelegationTokenManagerZk`,
`DelegationTokenInfoZNode`.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from anabranch.controller.zk.body import Body, MalformedZnode, dump
from anabranch.protocol.values import value

TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
CHANGE: Final = f"{CHANGES}/token_change_"
VERSION: Final = 3
FIRST_VERSION_WITH_REQUESTER: Final = 3


@value
class Token:
    """A delegation token, without its secret. Principals are type and name: `User:alice`."""

    token_id: str
    owner: str
    requester: str
    """The principal that requested it; usually the owner."""
    renewers: tuple[str, ...]
    """Principals that may renew and expire it besides its owner."""
    issued_ms: int
    expires_ms: int
    max_ms: int
    """The end of the period in which it may be renewed."""


def path_of(token_id: str) -> str:
    """Return the znode of a token."""
    return f"{TOKENS}/{token_id}"


def encode(token: Token) -> bytes:
    """Encode the body of a token's znode."""
    return dump(
        {
            "version": VERSION,
            "owner": quote(token.owner, safe=""),
            "tokenRequester": quote(token.requester, safe=""),
            "renewers": [quote(one, safe="") for one in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.token_id,
        }
    )


def decode(path: str, data: bytes) -> Token:
    """Decode a token from its znode. Raises MalformedZnode."""
    body = Body.parse(path, data)
    version = body.integer("version")
    if not 1 <= version <= VERSION:
        raise MalformedZnode(path, f"version {version} is not one of 1 to {VERSION}")
    owner = unquote(body.text("owner"))
    renewers = body.fields.get("renewers", [])
    if not isinstance(renewers, list) or not all(isinstance(one, str) for one in renewers):
        raise body.wrong("renewers", "a list of strings", renewers)
    return Token(
        token_id=body.text("tokenId"),
        owner=owner,
        requester=unquote(body.text("tokenRequester")) if version >= FIRST_VERSION_WITH_REQUESTER else owner,
        renewers=tuple(unquote(one) for one in renewers),
        issued_ms=body.integer("issueTimestamp"),
        expires_ms=body.integer("expiryTimestamp"),
        max_ms=body.integer("maxTimestamp"),
    )
