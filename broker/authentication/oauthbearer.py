"""OAUTHBEARER (RFC 7628, KIP-255): authenticates a client by its bearer token.

An invalid token does not end the exchange at once. The server sends the error as JSON, and the client answers with one
byte (0x01). The authentication then fails; its error message is that JSON.
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
    """The user of a valid token, and its expiry."""

    user: str
    expires_ms: int


class BadToken(Exception):
    """An invalid token. `scope` lists the scopes it lacks, if that is the only problem."""

    def __init__(self, reason: str, scope: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.scope = scope

    def as_json(self) -> str:
        """Return the error for the client, spaced as in Kafka; it contains neither the token nor the reason."""
        if not self.scope:
            return '{"status":"invalid_token"}'
        lacking = ", ".join(self.scope)
        return f'{{"status":"insufficient_scope", "scope":"[{lacking}]"}}'


class OAuthBearerServer:
    """One OAUTHBEARER exchange. `read` takes a token and the time in milliseconds; it raises BadToken."""

    def __init__(self, read: Callable[[str, int], Bearer]) -> None:
        self._read = read
        self._problem: str | None = None

    def step(self, token: bytes, now_ms: int) -> Step:
        """Validate the token, or fail after the client has acknowledged the error."""
        if self._problem is not None and token == _GIVEN_UP:
            raise SaslRefused("an invalid token", self._problem)
        acts_for, shown = _decode(token)
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


def _decode(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token of a first message. Raises SaslRefused, SaslProtocolError."""
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
