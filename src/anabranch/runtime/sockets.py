"""The address family for binding a socket to a host, and ports for processes that are to keep theirs.

`socket.create_server` binds IPv4 by default, and then refuses `::1`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from typing import Final

_candidates: Final = itertools.count(os.getpid() * 101)
"""Concurrent launchers begin at different ports."""
FIRST_PORT: Final = 15000
PORTS: Final = 17000
"""Ends below 32768, where Linux's range of outgoing ports begins."""


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


def free_ports(host: str, count: int) -> list[int]:
    """Find `count` ports that are free now and that no outgoing connection will use.

    The port of a stopped node must still be free when it restarts. The system takes the ports of outgoing connections
    from a range above these.
    """
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = FIRST_PORT + next(_candidates) % PORTS
            one = stack.enter_context(socket.socket(family_of(host)))
            with contextlib.suppress(OSError):
                one.bind((host, port))
                found.append(port)
    return found
