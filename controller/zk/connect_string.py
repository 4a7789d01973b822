"""Parses ZooKeeper's connect string, HOST:PORT,HOST:PORT/CHROOT. Source: `ConnectStringParser`.

The port can be left out. An IPv6 address is in brackets: `::1:2181` is itself an address.
"""

from __future__ import annotations

from typing import Final

from anabranch.protocol.host_port import parse_host, parse_host_port

DEFAULT_PORT: Final = 2181


def parse_connect_string(text: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """Return the addresses of the servers, and the path below which all znodes are. Raises ValueError."""
    hosts, slash, chroot = text.partition("/")
    return tuple(_address(one.strip()) for one in hosts.split(",")), f"{slash}{chroot}"


def _address(text: str) -> tuple[str, int]:
    has_port = ":" in text.rpartition("]")[2]
    host, port = parse_host_port(text) if has_port else (parse_host(text), DEFAULT_PORT)
    if not host:
        raise ValueError(f"{text!r} has no host: write HOST:PORT,HOST:PORT of the ensemble's servers")
    return host, port
