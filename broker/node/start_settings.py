"""Validates the settings that a node or a cluster starts with, and warns of properties without effect.

Properties that a node does not apply, by kind:

    security, and Java classes      refused, because the cluster would look protected and be open
    other properties                accepted with a warning, so that scripts for Kafka's brokers work unchanged
    set by a command-line option    refused with a hint to that option, which would override the property, or because
                                    the value differs between nodes

A property set to Kafka's default is always accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import logging
import os
import socket
import threading
from collections.abc import Mapping
from typing import Final

from anabranch.broker.authorization.authorizer_settings import authorizer_of
from anabranch.broker.config.broker_settings import BrokerSettings
from anabranch.broker.config.config_def import ConfigError, ConfigKey, Scope, config_def
from anabranch.broker.config.effective_config import with_properties
from anabranch.broker.config.listeners import PREFIX, Listener, base_name
from anabranch.broker.profiles.profile import profile_for
from anabranch.controller.zk.access import FORM, SASL, Login, login_in
from anabranch.protocol.host_port import bracket, format_host_port, parse_host

log: Final = logging.getLogger(__name__)

IDS: Final = ("broker.id", "node.id")
NOWHERE: Final = ("0.0.0.0", "::", "")
"""Addresses to listen on to which no client can connect."""
CONNECT_S: Final = 3.0
CONNECT_INTERVAL_S: Final = 1.0


def start_settings(settings: BrokerSettings, properties: Mapping[str, str]) -> BrokerSettings:
    """Apply start properties to settings, and warn once of those without effect. Raises ConfigError."""
    changed = with_properties(settings, properties)
    without_effect = _without_effect(changed)
    for name, key in without_effect.items():
        if key.refused:
            shown = name if key.sensitive else f"{name}={changed.given[name]}"
            raise ConfigError(f"{shown}: {key.without_effect}; leave the property out")
    if without_effect:
        log.warning("these properties have no effect here: %s", ", ".join(without_effect))
    _refuse_unused_security(changed)
    authorizer_of(changed)
    try:
        profile_for(changed.kafka_version)
        profile_for(changed.kafka_release or changed.kafka_version)
    except ValueError as error:
        raise ConfigError(f"kafka.version: {error}") from None
    zookeeper_login(changed)
    ids = {properties[name].strip() for name in IDS if name in properties}
    if len(ids) > 1:
        raise ConfigError("broker.id and node.id are the same property: set one of them")
    if changed.node_id < 0:
        raise ConfigError(f"broker.id={changed.node_id}: the id of a node must be an integer of at least 0")
    return dataclasses.replace(changed, given={name: text for name, text in changed.given.items() if name not in IDS})


def zookeeper_login(settings: BrokerSettings) -> Login | None:
    """The node's login at ZooKeeper; None: anonymous. Raises ConfigError."""
    if not settings.zookeeper_auth:
        if settings.zookeeper_set_acl:
            raise ConfigError(f"zookeeper.set.acl=true needs zookeeper.auth, equal on all nodes: write {FORM}")
        return None
    try:
        login = login_in(settings.zookeeper_auth)
    except ValueError as error:
        raise ConfigError(f"zookeeper.auth: {error}") from None
    if login.scheme == SASL and importlib.util.find_spec("puresasl") is None:
        raise ConfigError("zookeeper.auth: a login by sasl needs pip install 'anabranch[security]'")
    return login


def refuse_twice(properties: Mapping[str, str], options: Mapping[str, str]) -> None:
    """Raise ConfigError for a property that a command-line option sets. `options`: property -> the option to write."""
    for name, option in options.items():
        if name in properties:
            raise ConfigError(f"{name} differs between nodes, or is an option: write {option} instead")


def check_reachable(settings: BrokerSettings) -> None:
    """Raise ConfigError for an advertised address to which clients cannot connect, or a host that is no name."""
    for listener in settings.listening:
        for host in (listener.host, listener.reachable_host):
            try:
                parse_host(bracket(host))
            except ValueError as error:
                raise ConfigError(f"listener {listener.name}: {error}") from None
        if listener.reachable_host in NOWHERE:
            raise ConfigError(
                f"clients cannot connect to {listener.reachable_host or 'no host'}: "
                "write --advertise HOST with a name or address of this machine that clients can reach"
            )


async def check_peers_resolve(settings: BrokerSettings) -> None:
    """Raise ConfigError if the host name of the inter-broker listener does not resolve.

    A lookup may take many seconds and cannot be cancelled: its thread is a daemon, so a stop does not wait for it.
    """
    listener = settings.between_brokers
    host = listener.reachable_host
    if _is_loopback(host) or host == listener.host:
        return  # binding the listener reports a host that cannot be used
    loop = asyncio.get_running_loop()
    found: asyncio.Future[str] = loop.create_future()

    def report(trouble: str) -> None:
        if not found.done():
            found.set_result(trouble)

    def look_up() -> None:
        trouble = ""
        try:
            socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            trouble = str(error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the start was cancelled
            loop.call_soon_threadsafe(report, trouble)

    threading.Thread(target=look_up, name=f"look up {host}", daemon=True).start()
    if trouble := await found:
        raise ConfigError(
            f"brokers cannot connect to {host} ({trouble}): write --advertise with a name that this machine can "
            "resolve, or set inter.broker.listener.name to a second listener"
        )


async def warn_while_unreachable(settings: BrokerSettings) -> None:
    """Log a warning while this node's inter-broker address refuses connections; return once it accepts one.

    Without these connections brokers receive no metadata from the controller and do not become ready. The start
    continues, because a proxy at that address may start later.
    """
    listener = settings.between_brokers
    host, port = listener.reachable_host, listener.reachable_port(listener.port)
    if _is_loopback(host) or host == listener.host:
        return
    logged = ""
    while True:
        await asyncio.sleep(CONNECT_INTERVAL_S)  # most brokers are ready by then, and skip the check
        trouble = await _connect_trouble(host, port)
        if not trouble:
            return
        if trouble != logged:
            log.warning(
                "brokers cannot connect to broker %d at %s (%s), and keep retrying: advertise an address that reaches "
                "this machine from the cluster, or set inter.broker.listener.name to a second listener",
                settings.node_id,
                format_host_port(host, port),
                trouble,
            )
        logged = trouble


async def _connect_trouble(host: str, port: int) -> str:
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"no answer within {CONNECT_S:g} s"
    except OSError as error:
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    except (ValueError, OverflowError) as error:
        return str(error)
    writer.close()
    return ""


def warn_of_open_doors(settings: BrokerSettings) -> None:
    """Log a warning that names the non-loopback listeners without authentication."""
    open_ones = [
        f"{one.name}://{one.host}"
        for one in settings.listening
        if not (one.sasl or _is_loopback(one.host) or _asks_for_certificates(one, settings.given))
    ]
    if open_ones:
        log.warning(
            "clients of %s need no authentication: listen on 127.0.0.1, or configure security (docs/security.md)",
            " and ".join(open_ones),
        )


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _asks_for_certificates(listener: Listener, given: Mapping[str, str]) -> bool:
    name = "ssl.client.auth"
    client_auth = given.get(f"{PREFIX}{listener.name.lower()}.{name}", given.get(name, ""))
    return listener.tls and client_auth.strip().lower() == "required"


def _without_effect(settings: BrokerSettings) -> dict[str, ConfigKey]:
    """The given properties without effect whose values differ from Kafka's defaults."""
    if not settings.given:
        return {}
    known = config_def(Scope.BROKER).keys_by_name(settings.kafka_version)
    idle = {name: key for name in settings.given if (key := known[base_name(name)[1]]).without_effect}
    return {name: key for name, key in idle.items() if key.normal(settings.given[name]) != (key.default or "")}


def _refuse_unused_security(settings: BrokerSettings) -> None:
    """Raise ConfigError for TLS or SASL properties that no listener uses: the cluster would be open."""
    known = config_def(Scope.BROKER).keys_by_name()
    has = {"ssl.": any(one.tls for one in settings.listening), "sasl.": any(one.sasl for one in settings.listening)}
    has["delegation.token."] = has["sasl."]
    for name, text in settings.given.items():
        listener, base = base_name(name)
        if listener and listener not in (one.name for one in settings.listening):
            names = ", ".join(one.name for one in settings.listening)
            raise ConfigError(f"{name}: there is no listener {listener}; there is {names}")
        needs = next((prefix for prefix in has if base.startswith(prefix)), "")
        if needs and not has[needs] and known[base].normal(text) != (known[base].default or ""):
            protocol = "SSL" if needs == "ssl." else "SASL_SSL"
            raise ConfigError(
                f"{name}: no listener uses it, so it protects nothing; add a listener with protocol {protocol}, as "
                f"with --listener {protocol}://127.0.0.1:9093, or leave the property out"
            )
