"""PLAIN (RFC 4616): the client sends its name and password in clear text. Messages and order of checks are Kafka's."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from anabranch.broker.authentication.sasl_exchange import SaslRefused, Step


class PlainServer:
    """One PLAIN exchange, checked against the passwords of a listener."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def step(self, token: bytes, now_ms: int) -> Step:
        """Check the name and password; the exchange has one step."""
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            raise _refuse(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        acts_for, user, password = parts
        if not user:
            raise _refuse("Authentication failed: username not specified")
        if not password:
            raise _refuse("Authentication failed: password not specified")
        # compare for unknown users, too, to equalize the time; the received password is never empty here
        expected = self._passwords.get(user, "")
        if not hmac.compare_digest(expected.encode(), password.encode()):
            raise _refuse("Authentication failed: Invalid username or password")
        if acts_for and acts_for != user:
            raise _refuse("Authentication failed: Client requested an authorization id that is different from username")
        return Step(b"", user)


def _refuse(client_message: str) -> SaslRefused:
    return SaslRefused(client_message, client_message)
