"""Turns `key=value` text into settings, and says what is wrong, and what to write instead, when it cannot.

`with_properties` makes a node's settings of the properties that it was started with or given since, `topic_config` a
topic's of those that were set for it and of the broker's defaults. Source: Kafka's KafkaConfig and LogConfig.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from anabranch.broker.config.broker_properties import COARSE, broker_properties
from anabranch.broker.config.broker_settings import (
    INT64_MAX,
    WITHOUT_PROPERTY,
    BrokerSettings,
    TopicConfig,
    field_name,
    property_name,
)
from anabranch.broker.config.client_addresses import address_bounds
from anabranch.broker.config.listeners import SETTLED_BY, base_name, inter_broker_name, listeners_in
from anabranch.broker.config.property_declaration import ConfigError, ConfigKey, Kind
from anabranch.broker.config.topic_properties import topic_properties
from anabranch.protocol.errors import ErrorCode, KafkaError


def with_properties(settings: BrokerSettings, properties: Mapping[str, str]) -> BrokerSettings:
    """These settings with `key=value` properties applied; ConfigError names the first one that is wrong."""
    if not properties:
        return settings
    known = broker_properties()
    fields = {one.name: one for one in dataclasses.fields(BrokerSettings) if one.name not in WITHOUT_PROPERTY}
    changes: dict[str, Any] = {}
    for name, text in properties.items():
        listener, base = base_name(name)
        key, one = known.get(base), None if listener else fields.get(field_name(name))
        if key is None and (one is None or property_name(one.name) != name):
            raise ConfigError(f"unknown property {name!r}{_did_you_mean(name, [*known, *map(property_name, fields)])}")
        key = key or ConfigKey(name, _KINDS[str(one.type).partition("[")[0] if one else "str"], None)
        parsed = key.parse(text)
        if one is not None:
            changes[one.name] = _split(text) if str(one.type).startswith("tuple") else parsed
    changes |= _in_milliseconds(settings, properties)
    if any(name in properties for name in SETTLED_BY):
        changes |= _listeners(settings, {**settings.given, **properties})
    if _PER_IP in properties or _PER_IP_OVERRIDES in properties:
        _check_per_ip(changes, settings)
    _check_queue(changes, settings)
    given = {name: text for name, text in properties.items() if base_name(name)[1] in known}
    return dataclasses.replace(settings, **changes, given={**settings.given, **given})


def topic_config(settings: BrokerSettings, properties: Mapping[str, str]) -> TopicConfig:
    """The effective configuration of a topic: what was set for it, over the broker's defaults.

    Raises KafkaError(INVALID_CONFIG) for a name that Kafka does not know, and for a value that it refuses.
    """
    known = topic_properties()
    for name in properties:
        if name not in known:
            hint = _did_you_mean(name, known)
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}{hint}")
    try:
        set_here = {name: known[name].parse(text) for name, text in properties.items()}
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    effective: dict[str, Any] = {}
    for one in dataclasses.fields(TopicConfig):
        name = property_name(one.name)
        inherited = getattr(settings, field_name(known[name].synonym)) if known[name].synonym else one.default
        effective[one.name] = set_here.get(name, inherited)
    _check_together(effective, set_here)
    for bound in ("message_timestamp_before_max_ms", "message_timestamp_after_max_ms"):
        if effective[bound] == INT64_MAX:
            effective[bound] = effective["message_timestamp_difference_max_ms"]
    if effective["reshard_legacy_producers"] == "auto" and "enable.ordered.delivery" in set_here:
        effective["reshard_legacy_producers"] = "refuse" if set_here["enable.ordered.delivery"] else "allow"
    if effective["reshard_legacy_consumers"] == "auto" and "enable.ordered.delivery" in set_here:
        effective["reshard_legacy_consumers"] = "gate" if set_here["enable.ordered.delivery"] else "ignore"
    return TopicConfig(**effective)


def _check_together(effective: Mapping[str, Any], set_here: Mapping[str, Any]) -> None:
    least, most = effective["min_compaction_lag_ms"], effective["max_compaction_lag_ms"]
    if least > most:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
        )
    for name in ("remote.storage.enable", "remote.log.delete.on.disable", "remote.log.copy.disable"):
        if set_here.get(name):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}=true: there is no tiered storage here")


_PER_IP: Final = "max.connections.per.ip"
_PER_IP_OVERRIDES: Final = "max.connections.per.ip.overrides"


def _check_per_ip(changes: Mapping[str, Any], settings: BrokerSettings) -> None:
    overrides = changes.get("max_connections_per_ip_overrides", settings.max_connections_per_ip_overrides)
    address_bounds(overrides)
    if changes.get("max_connections_per_ip") == 0 and not overrides:
        raise ConfigError(
            f"{_PER_IP}=0 would refuse every client: name the addresses that may connect in {_PER_IP_OVERRIDES}"
        )


def _check_queue(changes: dict[str, Any], settings: BrokerSettings) -> None:
    """Raise the bound of queued bytes to the largest request; ConfigError if the bound was set explicitly."""
    largest = changes.get("socket_request_max_bytes", settings.socket_request_max_bytes)
    queued = changes.get("queued_max_request_bytes", settings.queued_max_request_bytes)
    if not 0 < queued < largest:
        return
    if "queued_max_request_bytes" in changes or "queued.max.request.bytes" in settings.given:
        raise ConfigError(
            f"queued.max.request.bytes={queued} holds no request of socket.request.max.bytes={largest}: raise the "
            "first, or lower the second"
        )
    changes["queued_max_request_bytes"] = largest


_KINDS: Final = {"int": Kind.LONG, "str": Kind.STRING, "bool": Kind.BOOLEAN, "float": Kind.DOUBLE, "tuple": Kind.LIST}


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _in_milliseconds(settings: BrokerSettings, properties: Mapping[str, str]) -> dict[str, Any]:
    """The values in milliseconds of properties in hours and minutes, unless a finer one is set."""
    changes = {}
    for name, (fine, factor) in COARSE.items():  # minutes come after hours, and win
        if name in properties and fine not in properties and fine not in settings.given:
            units = int(broker_properties()[name].parse(properties[name]))
            changes[field_name(fine)] = units * factor if units >= 0 else -1
    return changes


def _listeners(settings: BrokerSettings, properties: Mapping[str, str]) -> dict[str, Any]:
    """The listeners that properties describe; the fields of the only one there was, of the first of them."""
    listeners = listeners_in(properties, dataclasses.replace(settings, listeners=()).first_listener)
    first = listeners[0]
    return {
        "listeners": listeners,
        "inter_broker_listener": inter_broker_name(properties, listeners),
        "host": first.host,
        "port": first.port,
        "advertised_host": first.advertised_host,
        "advertised_port": first.advertised_port,
    }


def _did_you_mean(name: str, known: Mapping[str, Any] | list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
