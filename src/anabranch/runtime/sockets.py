"""The address family for binding a socket to a host, and ports for processes that are to keep theirs.

`socket.create_server` binds IPv4 by default, and then refuses `::1`.
"""

from __future__ import annotations

import contextlib
import errno
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
    from a range above these. OSError if this machine does not have the host's address, or too few ports are free.
    """
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        for candidate in itertools.islice(_candidates, PORTS):
            port = FIRST_PORT + candidate % PORTS
            one = stack.enter_context(socket.socket(family_of(host)))
            try:
                one.bind((host, port))
            except OSError as error:
                one.close()
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                found.append(port)
                if len(found) == count:
                    return found
    raise OSError(errno.EADDRINUSE, f"fewer than {count} ports of {host} are free from {FIRST_PORT} on")
