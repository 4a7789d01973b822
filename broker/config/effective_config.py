"""Parses and validates `key=value` properties into settings of brokers, topics and groups.

`with_properties` applies a node's start or dynamic properties, `topic_config` combines a topic's properties with the
broker's defaults, and `group_value` a group's. Versions of Kafka differ in properties and bounds. A broker accepts the
properties of all versions at the start, so one file works with every compatibility profile; requests may use only those
of the node's profile.

Pure. Source: Kafka's KafkaConfig, LogConfig and GroupConfig (KIP-848, KIP-932), 4.2.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from anabranch.broker.config.broker_settings import (
    INT64_MAX,
    BrokerSettings,
    TopicConfig,
    field_name,
    field_value,
    property_name,
)
from anabranch.broker.config.config_def import ConfigError, ConfigKey, Scope, config_def, text_of
from anabranch.broker.config.listeners import SETTLED_BY, address_bounds, base_name, inter_broker_name, listeners_in
from anabranch.broker.config.storage_properties import COARSE
from anabranch.protocol.errors import ErrorCode, KafkaError

_FIELDS: Final = {one.name: one for one in dataclasses.fields(BrokerSettings) if one.name != "listeners"}


def with_properties(settings: BrokerSettings, properties: Mapping[str, str]) -> BrokerSettings:
    """Apply `key=value` properties to settings. Raises ConfigError for the first invalid one."""
    if not properties:
        return settings
    known = config_def(Scope.BROKER).keys_by_name(properties.get("kafka.version", settings.kafka_version))
    changes: dict[str, Any] = {}
    given = dict(settings.given)
    for name, text in properties.items():
        listener, base = base_name(name)
        key = known.get(base)
        if key is None or (listener and key.internal):
            raise ConfigError(f"unknown property {name!r}{_did_you_mean(name, known)}")
        key.parse(text)
        field = None if listener else _FIELDS.get(field_name(name))
        if field is not None:
            changes[field.name] = field_value(str(field.type), key, text)
        if not key.internal:
            given[name] = text
    changes |= _in_milliseconds(settings, properties)
    if any(name in properties for name in SETTLED_BY):
        changes |= _listeners(settings, {**settings.given, **properties})
    if _PER_IP in properties or _PER_IP_OVERRIDES in properties:
        _check_per_ip(changes, settings)
    _check_queue(changes, settings)
    return dataclasses.replace(settings, **changes, given=given)


def with_profile_defaults(settings: BrokerSettings) -> BrokerSettings:
    """Set the properties that were not given to the defaults of the node's compatibility profile."""
    declared, changes = config_def(Scope.BROKER), {}
    reference = declared.keys_by_name()
    for name, key in declared.described_keys(settings.kafka_version).items():
        field = _FIELDS.get(field_name(name))
        if key.default == reference[name].default or field is None or field.default == "" or name in settings.given:
            continue
        if getattr(settings, field.name) == field.default:
            changes[field.name] = field_value(str(field.type), key, key.default or "")
    return dataclasses.replace(settings, **changes) if changes else settings  # type: ignore[arg-type]


def topic_config(settings: BrokerSettings, properties: Mapping[str, str]) -> TopicConfig:
    """The effective configuration of a topic: its own properties over the broker's defaults.

    Raises KafkaError(INVALID_CONFIG) for an unknown name or an invalid value.
    """
    known = config_def(Scope.TOPIC).keys_by_name()
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
        synonym = known[name].synonym
        inherited = getattr(settings, field_name(synonym)) if synonym else one.default
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


def check_topic_properties(kafka_version: str, properties: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG for topic properties and values that only other versions of Kafka accept."""
    declared = config_def(Scope.TOPIC)
    for name, text in properties.items():
        if name not in declared.keys_by_name():
            continue
        key = declared.described_keys(kafka_version).get(name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        try:
            key.parse(text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_together(effective: Mapping[str, Any], set_here: Mapping[str, Any]) -> None:
    least, most = effective["min_compaction_lag_ms"], effective["max_compaction_lag_ms"]
    if least > most:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
        )
    for name, content in set_here.items():
        key = config_def(Scope.TOPIC).keys_by_name()[name]
        if key.refused and text_of(content) != key.default:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={text_of(content)}: {key.without_effect} here")


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
    """Increase the bound of queued bytes to the largest request. Raises ConfigError if the bound was set explicitly."""
    largest = changes.get("socket_request_max_bytes", settings.socket_request_max_bytes)
    queued = changes.get("queued_max_request_bytes", settings.queued_max_request_bytes)
    if not 0 < queued < largest:
        return
    if "queued_max_request_bytes" in changes or "queued.max.request.bytes" in settings.given:
        raise ConfigError(
            f"queued.max.request.bytes={queued} is less than socket.request.max.bytes={largest}: raise the "
            "first, or lower the second"
        )
    changes["queued_max_request_bytes"] = largest


def _in_milliseconds(settings: BrokerSettings, properties: Mapping[str, str]) -> dict[str, Any]:
    """Convert properties in hours and minutes to milliseconds, unless a finer one is set."""
    changes = {}
    for name, (fine, factor) in COARSE.items():  # minutes override hours
        if name in properties and fine not in properties and fine not in settings.given:
            units = int(config_def(Scope.BROKER).keys_by_name()[name].parse(properties[name]))
            changes[field_name(fine)] = units * factor if units >= 0 else -1
    return changes


def _listeners(settings: BrokerSettings, properties: Mapping[str, str]) -> dict[str, Any]:
    """The settings of the listeners in properties; `host`, `port` and advertised fields are the first listener's."""
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


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


_STANDBYS: Final = "streams.num.standby.replicas"
RESET: Final = "share.auto.offset.reset"
ISOLATION: Final = "share.isolation.level"
LATEST: Final = "latest"
EARLIEST: Final = "earliest"
BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_HEARTBEAT: Final = "heartbeat.interval.ms"
_SESSION: Final = "session.timeout.ms"


def group_value(settings: BrokerSettings, given: Mapping[str, str], name: str) -> int:
    """The effective value of a group's property: its own, or the broker's."""
    if name in given:
        return int(given[name])
    number: int = getattr(settings, "group_" + name.replace(".", "_"))
    return number


def group_default(settings: BrokerSettings, key: ConfigKey) -> str | None:
    """The default of a group's property: the broker's setting, or the declared one."""
    field = "group_" + key.name.replace(".", "_")
    return str(getattr(settings, field)) if hasattr(settings, field) else key.default


def check_group_config(settings: BrokerSettings, given: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG for an unknown group property, or a value that this broker does not accept."""
    try:
        for name, text in given.items():
            key = config_def(Scope.GROUP).keys_by_name().get(name)
            if key is None:
                raise ConfigError(f"Unknown group config name: {name}")
            key.parse(text)
            if name == RESET and text not in (LATEST, EARLIEST):
                duration_ms(text)
            _check_bounds(settings, name, text)
        if int(given.get(_STANDBYS, 0)) > settings.group_streams_max_standby_replicas:
            bound = f"group.streams.max.standby.replicas={settings.group_streams_max_standby_replicas}"
            raise ConfigError(f"{_STANDBYS}={given[_STANDBYS]} must be at most {bound}")
        for kind in ("consumer", "share", "streams"):
            beat, session = (group_value(settings, given, f"{kind}.{one}") for one in (_HEARTBEAT, _SESSION))
            if beat >= session:
                raise ConfigError(f"{kind}.{_HEARTBEAT}={beat} must be less than {kind}.{_SESSION}={session}")
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_bounds(settings: BrokerSettings, name: str, text: str) -> None:
    """Raise ConfigError for a number outside the bounds that the broker's properties set."""
    kind, _, rest = name.partition(".")
    for word, side, wrong in (("min", "at least", int.__lt__), ("max", "at most", int.__gt__)):
        bound_name = f"group.{kind}.{word}.{rest}"
        key = config_def(Scope.BROKER).keys_by_name().get(bound_name)
        if key is not None:
            bound = getattr(settings, field_name(bound_name), None) or settings.given.get(bound_name) or key.default
            if wrong(int(text), int(bound or 0)):
                raise ConfigError(f"{name}={int(text)} must be {side} {bound_name}={int(bound or 0)}")


def duration_ms(text: str) -> int:
    """Parse the duration of `by_duration:PT1H30M`, in ms. Raises ConfigError."""
    found = _DURATION.fullmatch(text.removeprefix(BY_DURATION)) if text.startswith(BY_DURATION) else None
    if found is None or not any(found.groups()):
        raise ConfigError(f"{RESET}={text!r} must be latest, earliest or a duration such as by_duration:P1DT2H30M")
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
