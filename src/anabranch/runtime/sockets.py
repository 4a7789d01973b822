"""The address family for binding a socket to a host.

`socket.create_server` binds IPv4 by default, and then refuses `::1`.
"""

from __future__ import annotations

import socket


def family_of(host: str) -> socket.AddressFamily:
    """Return IPv6 for a host that has no IPv4 address, and IPv4 for all others, `localhost` included.

    A name without any address gets IPv4: binding then fails and names the cause.
    """
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return socket.AF_INET
    families = {row[0] for row in rows}
    return socket.AF_INET6 if families == {socket.AF_INET6} else socket.AF_INET
