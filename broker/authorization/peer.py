"""Who is at the other end of a connection: where it comes from, by which listener, and as whom it is believed.

Whoever has not authenticated is Kafka's anonymous user, as everybody is on a listener without TLS or SASL.
"""

from __future__ import annotations

import functools
import ipaddress
from typing import Final

from anabranch.protocol.host_port import format_host_port
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
    software_name: str = ""
    """What it has called itself in ApiVersions (KIP-511); nothing says that this is true."""
    software_version: str = ""

    @property
    def acl_host(self) -> str:
        """Its address as access control lists write it."""
        return self.host if ":" not in self.host else _expand_address(self.host)

    @property
    def user(self) -> str:
        """The name of the principal, by which quotas go."""
        return self.principal.partition(":")[2]

    def __str__(self) -> str:
        return format_host_port(self.host, self.port)


@functools.lru_cache(maxsize=1024)
def _expand_address(address: str) -> str:
    """An IPv6 address as Java writes it: with all its zeros, and mapped IPv4 as IPv4."""
    plain, percent, scope = address.partition("%")
    parsed = ipaddress.IPv6Address(plain)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in parsed.exploded.split(":")) + percent + scope


UNKNOWN_PEER: Final = Peer("?")
"""The peer of a connection that has none yet."""
