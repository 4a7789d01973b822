"""Parses and formats HOST:PORT: an IPv6 address is in brackets, with its zone id if it has one.

Every address from a user, for a client or in a log line uses these functions. Without brackets `::1:9092` is itself an
address, so it is refused. So is a name that no resolver looks up: it would raise UnicodeError wherever it is used.
Source: RFC 3986 (brackets), RFC 4007 (zone ids), RFC 1035 (names).
"""

from __future__ import annotations

import ipaddress
from typing import Final

PORT_MAX: Final = 65535
LABEL_MAX: Final = 63
LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
ADVICE: Final = "write HOST:PORT, with an IPv6 address in brackets: 127.0.0.1:9092 or [::1]:9092"


def bracket(host: str) -> str:
    """Return a host as written before a colon: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def format_host_port(host: str, port: int | str) -> str:
    """Format a host and a port as HOST:PORT."""
    return f"{bracket(host)}:{port}"


def connectable(host: str) -> str:
    """Return an address at which clients on this machine reach a server that listens on `host`.

    A server that listens on all addresses (`0.0.0.0`, `::`) is reached at loopback: browsers refuse the others.
    """
    return LOOPBACK.get(host, host)


def parse_host_port(text: str) -> tuple[str, int]:
    """Parse HOST:PORT; the host is empty in ":9092". Raises ValueError.

    A zone id stays part of the host, as in ("fe80::1%eth0", 9092): `getaddrinfo` takes it.
    """
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f"{text!r} has no port: {ADVICE}")
    if not (port.isascii() and port.isdecimal() and len(port) <= len(str(PORT_MAX)) and int(port) <= PORT_MAX):
        raise ValueError(f"{text!r} has no port from 0 to {PORT_MAX} after its last colon: {ADVICE}")
    return parse_host(host, text), int(port)


def parse_host(host: str, text: str = "") -> str:
    """Parse the part in front of the port, and remove the brackets of an IPv6 address. Raises ValueError.

    `text` is the whole address, for the error message.
    """
    text = text or host
    if not host.startswith("[") and not host.endswith("]"):
        if ":" in host:
            raise ValueError(f"{text!r} has an IPv6 address without brackets: {ADVICE}")
        if host and not _is_name(host):
            raise ValueError(f"{text!r} has a name with an empty part, or one of over {LABEL_MAX} characters: {ADVICE}")
        return host
    inner = host.removeprefix("[").removesuffix("]")
    address, percent, zone = inner.partition("%")
    if len(inner) != len(host) - 2 or not _is_ipv6(address) or (percent and not zone):
        raise ValueError(f"{text!r} has no IPv6 address in its brackets: {ADVICE}")
    return inner


def _is_ipv6(address: str) -> bool:
    try:
        return isinstance(ipaddress.ip_address(address), ipaddress.IPv6Address)
    except ValueError:
        return False


def _is_name(host: str) -> bool:
    """Whether a resolver can look a name up, be it registered or not."""
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            return False
    labels = host.removesuffix(".").split(".")
    return host.isprintable() and all(0 < len(label) <= LABEL_MAX for label in labels)
