"""OAUTHBEARER (RFC 7628, KIP-255): the client shows a token, and what reads tokens says whose it is.

A refused token does not end the exchange: the client is told why in JSON, answers with one byte, and only then hears
that its authentication failed, with the same JSON as the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from anabranch.broker.authentication.sasl_exchange import SaslProtocolError, SaslRefused, Step
from anabranch.protocol.values import value

_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST: Final = re.compile(rf"n,(?:a=(?P<acts_for>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
_BEARER: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)", re.ASCII)
_GIVEN_UP: Final = b"\x01"


@value
class Bearer:
    """Whose token it is, and when it ends."""

    user: str
    expires_ms: int


class BadToken(Exception):
    """A token that is not taken. `scope` is what it lacks, if that is all."""

    def __init__(self, reason: str, scope: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.scope = scope

    def as_json(self) -> str:
        """As the client is told, spaced as Kafka does; neither the token nor the reason is part of it."""
        if not self.scope:
            return '{"status":"invalid_token"}'
        lacking = ", ".join(self.scope)
        return f'{{"status":"insufficient_scope", "scope":"[{lacking}]"}}'


class OAuthBearerServer:
    """One authentication. `read` takes a token and the time in milliseconds; it raises BadToken."""

    def __init__(self, read: Callable[[str, int], Bearer]) -> None:
        self._read = read
        self._problem: str | None = None

    def step(self, token: bytes, now_ms: int) -> Step:
        """Judge the token, or end what a bad one began."""
        if self._problem is not None and token == _GIVEN_UP:
            raise SaslRefused("a bad token", self._problem)
        acts_for, shown = _shown(token)
        try:
            bearer = self._read(shown, now_ms)
        except BadToken as bad:
            self._problem = bad.as_json()
            return Step(self._problem.encode())
        if acts_for and acts_for != bearer.user:
            problem = (
                f"Authentication failed: Client requested an authorization id ({acts_for}) that is different from "
                f"the token's principal name ({bearer.user})"
            )
            raise SaslRefused(problem, problem)
        return Step(b"", bearer.user, bearer.expires_ms)


def _shown(message: bytes) -> tuple[str, str]:
    """Whom the client acts for, and its token. Raises Refused."""
    first = _FIRST.fullmatch(message.decode(errors="replace"))
    if first is None:
        raise SaslRefused("an invalid first message of OAUTHBEARER")
    pairs = dict(pair.split("=", 1) for pair in first["pairs"].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise SaslRefused("a first message of OAUTHBEARER without a token")
    if bearer["scheme"].lower() != "bearer":
        raise SaslProtocolError(f"a token of the scheme {bearer['scheme'][:20]!r}, not Bearer")
    return first["acts_for"] or "", bearer["token"]
