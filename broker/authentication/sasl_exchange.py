"""The common interface of SASL mechanisms: an exchange takes a client's token, and answers or refuses it.

    step               the next answer; the last one names the user
    SaslRefused        SASL_AUTHENTICATION_FAILED, with the mechanism's error text or the general one
    SaslProtocolError  the connection closes without a response: Kafka's mechanism throws there

Neither the texts of these exceptions nor chained exceptions contain secrets: they may be logged.
"""

from __future__ import annotations

from typing import Protocol

from anabranch.protocol.values import value


class SaslRefused(Exception):
    """Failed authentication. `client_message` is the error text for the client; None: the mechanism's general text."""

    def __init__(self, reason: str, client_message: str | None = None) -> None:
        super().__init__(reason)
        self.client_message = client_message


class SaslProtocolError(Exception):
    """A violation of the protocol; the connection closes without a response."""


@value
class Step:
    """An answer to the client. The exchange is complete when it names a user."""

    answer: bytes
    user: str | None = None
    expires_ms: int | None = None
    """When the credential expires, in milliseconds since the epoch; None: never."""
    by_token: bool = False
    """Whether the user authenticated with a delegation token."""


class Exchange(Protocol):
    """The server side of one authentication."""

    def step(self, token: bytes, now_ms: int) -> Step:
        """Process the client's next token. Raises SaslRefused or SaslProtocolError, which end the exchange."""


def general_refusal(mechanism: str, *, again: bool = False) -> str:
    """Return the error text for mechanisms without their own; `again` for a re-authentication."""
    what = "re-authentication" if again else "authentication"
    return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {mechanism}"
