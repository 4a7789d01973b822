"""Addresses that clients come from: how they are compared, and how many connections each may have.

Pure, and apart from `connection_quotas` because the configuration is checked with it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from anabranch.broker.config.config_def import ConfigError


def address_bounds(overrides: Sequence[str]) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: how many connections each of these addresses may have. ConfigError."""
    if not overrides:
        return {}
    bounds = {}
    for text in overrides:
        address, colon, count = text.rpartition(":")
        try:
            ip = str(ipaddress.ip_address(address.strip("[]")))
        except ValueError:
            ip = ""
        if not colon or not ip or not count.isdecimal():
            raise ConfigError(f"max.connections.per.ip.overrides: {text!r} is no ADDRESS:COUNT, such as 10.0.0.1:5")
        bounds[canonical(ip)] = int(count)
    return bounds


def canonical(address: str) -> str:
    """An address as it is compared: `::ffff:10.0.0.1` comes from 10.0.0.1."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address  # a host name, which is never the address of a connection
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return str(mapped or ip)
