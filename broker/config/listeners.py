"""The listeners of a node: addresses, each with a name, a security protocol and an advertised address.

    listeners=INTERNAL://127.0.0.1:9092,EXTERNAL://0.0.0.0:9094
    advertised.listeners=INTERNAL://127.0.0.1:9092,EXTERNAL://kafka.example:9094
    listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL
    inter.broker.listener.name=INTERNAL

Pure. Validation follows `KafkaConfig.validateValues` and `CoreUtils.listenerListToEndPoints`. A property of one
listener, such as `listener.name.external.ssl.client.auth`, overrides the one without a prefix. This module also
normalizes client addresses, and parses the limits of connections per address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from anabranch.broker.config.config_def import ConfigError
from anabranch.protocol.host_port import format_host_port, parse_host_port
from anabranch.protocol.values import value

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols, by number."""
PROTOCOL_MAP: Final = "listener.security.protocol.map"
INTER_BROKER_NAME: Final = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"
PREFIX: Final = "listener.name."
SETTLED_BY: Final = ("listeners", "advertised.listeners", PROTOCOL_MAP, INTER_BROKER_NAME, INTER_BROKER_PROTOCOL)
"""The properties that determine the listeners; they are parsed together."""


@value
class Listener:
    """One address of a node. With port 0 the system chooses the port when the node starts."""

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str = ""
    """The host that clients and other nodes connect to; empty: `host`."""
    advertised_port: int = 0
    """The port that clients and other nodes connect to; 0: the listener's port."""

    @property
    def reachable_host(self) -> str:
        """The host that clients and other nodes connect to."""
        return self.advertised_host or self.host

    def reachable_port(self, listening: int) -> int:
        """The port that clients and other nodes connect to, given the bound port."""
        return self.advertised_port or listening

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """Whether clients must authenticate by SASL."""
        return self.protocol.startswith("SASL_")

    def __str__(self) -> str:
        return f"{self.name}://{format_host_port(self.host, self.port)}"


def listeners_in(properties: Mapping[str, str], default: Listener) -> tuple[Listener, ...]:
    """Parse the listeners from properties; `default` alone without `listeners`. Raises ConfigError."""
    protocols = _protocols(properties.get(PROTOCOL_MAP))
    bound = _addresses("listeners", properties["listeners"]) if "listeners" in properties else None
    if bound is None:
        bound = {default.name: (default.host, default.port)}
        protocols.setdefault(default.name, default.protocol)
    _check_ports(bound)
    advertised: Mapping[str, tuple[str, int]] = {}
    if "advertised.listeners" in properties:
        advertised = _addresses("advertised.listeners", properties["advertised.listeners"])
    elif default.advertised_host:
        port = default.advertised_port if len(bound) == 1 else 0
        advertised = dict.fromkeys(bound, (default.advertised_host, port))
    unknown = advertised.keys() - bound.keys()
    if unknown:
        raise ConfigError(f"advertised.listeners names {', '.join(sorted(unknown))}, which `listeners` does not")
    for name in bound:
        if name not in protocols:
            raise ConfigError(
                f"No security protocol defined for listener {name}: write {PROTOCOL_MAP}={name}:{PLAINTEXT}, "
                f"or another one of {', '.join(PROTOCOLS)}"
            )
    return tuple(
        Listener(name, protocols[name], host, port, *advertised.get(name, ("", 0)))
        for name, (host, port) in bound.items()
    )


def inter_broker_name(properties: Mapping[str, str], listeners: tuple[Listener, ...]) -> str:
    """Find the name of the listener for connections between nodes. Raises ConfigError."""
    name = properties.get(INTER_BROKER_NAME, "").strip().upper()
    protocol = properties.get(INTER_BROKER_PROTOCOL, "").strip()
    if name and protocol:
        raise ConfigError(f"Only one of {INTER_BROKER_NAME} and {INTER_BROKER_PROTOCOL} should be set.")
    names = [one.name for one in listeners]
    if name or protocol:
        listener_name = name or protocol
        if listener_name not in names:
            raise ConfigError(
                f"no listener {listener_name} for traffic between brokers; the listeners are {', '.join(names)}"
            )
        return listener_name
    if len(names) == 1 or PLAINTEXT in names:
        return PLAINTEXT if PLAINTEXT in names else names[0]
    raise ConfigError(
        f"the listener between brokers is ambiguous: write {INTER_BROKER_NAME}={names[0]}, or another listener"
    )


def base_name(name: str) -> tuple[str, str]:
    """Split `listener.name.external.ssl.client.auth` into listener and property: ("EXTERNAL", "ssl.client.auth").

    The prefix of a mechanism is dropped: `listener.name.external.plain.sasl.jaas.config` is ("EXTERNAL",
    "sasl.jaas.config"). A property without a listener is ("", name).
    """
    if not name.startswith(PREFIX):
        return "", name
    listener, _, rest = name[len(PREFIX) :].partition(".")
    mechanism, _, inner = rest.partition(".")
    return listener.upper(), inner if mechanism in _PREFIX_MECHANISMS and inner else rest


MAX_CONNECTIONS: Final = "max.connections"
CREATION_RATE: Final = "max.connection.creation.rate"
LIMITS: Final = (MAX_CONNECTIONS, CREATION_RATE)
"""Properties that with the prefix of a listener limit this listener, in addition to all (KIP-402, KIP-612)."""


KEY_STORE: Final = "ssl.keystore."
_CLUSTER_WIDE: Final = (*LIMITS, "num.network.threads")
"""The properties of a listener that may be set for all brokers."""


def is_local(name: str) -> bool:
    """Return whether this is a property of a listener that only a single broker can have."""
    listener, base = base_name(name)
    return listener != "" and base not in _CLUSTER_WIDE


def is_fixed(name: str, listeners: Iterable[Listener]) -> bool:
    """Return whether this property of one of these listeners takes effect only at the start of the broker."""
    listener, base = base_name(name)
    changeable = base in _CLUSTER_WIDE or base.startswith(KEY_STORE) or base == "ssl.key.password"
    return not changeable and any(listener == one.name for one in listeners)


def listener_limits(properties: Mapping[str, str], name: str) -> dict[str, int]:
    """Return listener -> its own limit of this name; the values are valid."""
    found = ((base_name(one), text) for one, text in properties.items() if one.startswith(PREFIX))
    return {listener: int(text) for (listener, base), text in found if base == name}


_PREFIX_MECHANISMS: Final = frozenset({"plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi"})


def _protocols(text: str | None) -> dict[str, str]:
    if text is None:
        return {one: one for one in PROTOCOLS}
    protocols: dict[str, str] = {}
    for pair in text.split(","):
        name, colon, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not colon or not name or protocol not in PROTOCOLS:
            raise ConfigError(f"{PROTOCOL_MAP}: {pair.strip()!r} is not NAME:PROTOCOL with one of {PROTOCOLS}")
        if name in protocols:
            raise ConfigError(f"{PROTOCOL_MAP} names {name} twice")
        protocols[name] = protocol
    return protocols


def _addresses(what: str, text: str) -> dict[str, tuple[str, int]]:
    addresses: dict[str, tuple[str, int]] = {}
    for url in (part.strip() for part in text.split(",")):
        name, slashes, address = url.partition("://")
        name = name.strip().upper()
        if not (slashes and name):
            raise ConfigError(f"{what}={text!r}: write NAME://HOST:PORT, with commas between several")
        try:
            host, port = parse_host_port(address)
        except ValueError as error:
            raise ConfigError(
                f"{what}={text!r}: write NAME://HOST:PORT, with commas between several: {error}"
            ) from None
        if name in addresses:
            raise ConfigError(f"{what}={text!r}: Each listener must have a different name, and {name} is there twice")
        addresses[name] = host, port
    return addresses


def _check_ports(addresses: Mapping[str, tuple[str, int]]) -> None:
    """Raise ConfigError if two listeners share a port, unless one is IPv4 and the other IPv6."""
    seen: dict[int, list[str]] = {}
    for host, port in addresses.values():
        if port:
            seen.setdefault(port, []).append(host)
    for port, hosts in seen.items():
        if len(hosts) > 1 and sorted(map(_ip_version, hosts)) != [4, 6]:
            raise ConfigError(f"listeners: Each listener must have a different port, and {port} is there twice")


def _ip_version(host: str) -> int:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def address_bounds(overrides: Sequence[str]) -> dict[str, int]:
    """Parse `max.connections.per.ip.overrides`: address -> most connections. Raises ConfigError."""
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
            raise ConfigError(f"max.connections.per.ip.overrides: {text!r} is not ADDRESS:COUNT, such as 10.0.0.1:5")
        bounds[canonical(ip)] = int(count)
    return bounds


def canonical(address: str) -> str:
    """Normalize an address: `::ffff:10.0.0.1` becomes 10.0.0.1."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address  # a host name, which is never the address of a connection
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return str(mapped or ip)
