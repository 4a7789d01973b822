"""The peer of a connection: its address, listener and principal.

Before authentication, and on listeners without TLS or SASL, the principal is Kafka's anonymous user.
"""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import field
from typing import Final

from anabranch.protocol.host_port import format_host_port
from anabranch.protocol.values import slotted, value

PLAINTEXT: Final = "PLAINTEXT"
ANONYMOUS: Final = "User:ANONYMOUS"


class Referable:
    """A base of classes with slots: there may be weak references to their objects."""

    __slots__ = ("__weakref__",)


@slotted(eq=False)
class ConnectionState(Referable):
    """The state of a connection, for requests that are processed meanwhile."""

    is_lost: bool = False


@value
class Peer:
    """The peer of one connection, for authorization and quotas."""

    host: str
    """The address without the port."""
    port: int = 0
    principal: str = ANONYMOUS
    """Type and name: `User:alice`."""
    listener: str = PLAINTEXT
    protocol: str = PLAINTEXT
    """The listener's security protocol."""
    by_token: bool = False
    software_name: str = ""
    """The client's software name from ApiVersions (KIP-511), which is not verified."""
    software_version: str = ""
    connection: ConnectionState = field(default_factory=ConnectionState, repr=False, compare=False)

    @property
    def acl_host(self) -> str:
        """The address in the format of access control lists."""
        return self.host if ":" not in self.host else _expand_address(self.host)

    @property
    def user(self) -> str:
        """The principal's name, which identifies user quotas."""
        return self.principal.partition(":")[2]

    def __str__(self) -> str:
        return format_host_port(self.host, self.port)


@functools.lru_cache(maxsize=1024)
def _expand_address(address: str) -> str:
    """Format an IPv6 address as Java does: without `::`, and IPv4-mapped addresses as IPv4."""
    plain, percent, scope = address.partition("%")
    parsed = ipaddress.IPv6Address(plain)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in parsed.exploded.split(":")) + percent + scope


UNKNOWN_PEER: Final = Peer("?")
"""The placeholder for a connection whose peer is unknown."""
