"""What the mechanisms of SASL have in common: a machine takes a client's token and gives the answer to it, or refuses.

    step          the next answer; the last one names the user
    Refused       the client is told SASL_AUTHENTICATION_FAILED, with a text of the mechanism's or the general one
    Unanswerable  the connection ends without a word: Kafka's own machine throws there

No text of these exceptions holds a secret, and none is chained to one that might: they may be logged.
"""

from __future__ import annotations

from typing import Protocol

from anabranch.protocol.values import value


class SaslRefused(Exception):
    """The client is not who it says. `told` is what it hears; None stands for the general text of the mechanism."""

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told


class SaslProtocolError(Exception):
    """The client sent what no honest one would; nothing is answered."""


@value
class Step:
    """An answer. The exchange is over when it names a user."""

    answer: bytes
    user: str | None = None
    expires_ms: int | None = None
    """When the credential ends, in milliseconds since the epoch; None where it does not."""
    by_token: bool = False
    """Whether the user has shown a delegation token."""


class Exchange(Protocol):
    """The server's side of one authentication."""

    def step(self, token: bytes, now_ms: int) -> Step:
        """Take the client's next token. Raises Refused or Unanswerable, after which the exchange is dead."""


def general_refusal(mechanism: str, *, again: bool = False) -> str:
    """What a client hears when the mechanism has no text of its own; `again` if it was authenticated before."""
    what = "re-authentication" if again else "authentication"
    return f"Authentication failed during {what} due to invalid credentials with SASL mechanism {mechanism}"
