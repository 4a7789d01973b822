"""Who is at the other end of a connection: where it comes from, by which listener, and as whom it is believed.

Whoever has not authenticated is Kafka's anonymous user, as everybody is on a listener without TLS or SASL.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.values import value

PLAINTEXT: Final = "PLAINTEXT"
ANONYMOUS: Final = "User:ANONYMOUS"


@value
class Peer:
    """The other end of one connection, as requests over it are judged and answered."""

    host: str
    """Its address without the port."""
    port: int = 0
    principal: str = ANONYMOUS
    """Type and name: `User:alice`."""
    listener: str = PLAINTEXT
    """The name of the listener it came by."""
    protocol: str = PLAINTEXT
    """The security protocol of that listener."""
    by_token: bool = False
    """Whether it authenticated with a delegation token."""

    @property
    def user(self) -> str:
        """The name of the principal, by which quotas go."""
        return self.principal.partition(":")[2]

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


NOBODY: Final = Peer("?")
"""The peer of a connection that has none yet."""
