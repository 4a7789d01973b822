"""The ports of the brokers of one process: the port on which each listens, and the port that it advertises."""

from __future__ import annotations

import dataclasses
from typing import Final

from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.protocol.host_port import format_host_port

CLIENTS: Final = "PLAINTEXT"
BETWEEN_BROKERS: Final = "INTERNAL"


def mapped_listeners(host: str, port: int, advertised_host: str, advertised_port: int) -> dict[str, str]:
    """The properties of brokers that clients reach by another port than the one they listen on.

    This machine may have no way to the advertised address (a NAT, a container's published port). So brokers connect to
    each other by a second listener.
    """
    return {
        "listeners": f"{CLIENTS}://{format_host_port(host, port)},{BETWEEN_BROKERS}://127.0.0.1:0",
        "advertised.listeners": f"{CLIENTS}://{format_host_port(advertised_host, advertised_port)}",
        "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{BETWEEN_BROKERS}:PLAINTEXT",
        "inter.broker.listener.name": BETWEEN_BROKERS,
    }


def at_ports(settings: BrokerSettings, place: int) -> BrokerSettings:
    """The settings of the broker at a place, from those of the first one: its ports, unless the system chooses them."""
    bound = settings.bound({one.name: one.port + place if one.port else 0 for one in settings.listening})
    listeners = tuple(
        dataclasses.replace(one, advertised_port=one.advertised_port + place) if one.advertised_port else one
        for one in bound.listeners
    )
    return dataclasses.replace(bound, listeners=listeners)
