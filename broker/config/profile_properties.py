"""The properties of brokers and topics as a persona has them: some are gone, some are new, some have other defaults.

What is gone is not shown, and refused in requests that set a topic's; at the start a broker still takes it, so that one
file of properties serves nodes of different personas. What is new has no effect here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Final

from anabranch.broker.config.broker_properties import broker_properties
from anabranch.broker.config.broker_settings import BrokerSettings, field_name
from anabranch.broker.config.property_declaration import ConfigError, ConfigKey, UpdateMode, table
from anabranch.broker.config.topic_properties import topic_properties
from anabranch.broker.profiles.profile import profile_for
from anabranch.protocol.errors import ErrorCode, KafkaError

OURS: Final = ("reshard.", "enable.ordered.delivery", "queued.max.response.bytes", "message.max.decompressed.")
"""What the names of our own properties begin with: every persona has them."""


@functools.cache
def broker_properties_of(kafka_version: str) -> Mapping[str, ConfigKey]:
    """Every property of a broker that this persona shows, by name."""
    shown = profile_for(kafka_version)
    known = broker_properties()
    if not shown.gone_properties:
        return known
    keys = {name: key for name, key in known.items() if name not in shown.gone_properties}
    for name, text in shown.new_defaults.items():
        keys[name] = _with_default(keys[name], text)
    for name, where in shown.new_changes.items():
        keys[name] = dataclasses.replace(keys[name], changes=UpdateMode(where))
    return keys | table(shown.new_properties, lambda _: None)


def _with_default(key: ConfigKey, text: str) -> ConfigKey:
    """The property with another default, which may be a value that was none before."""
    try:
        key.parse(text)
    except ConfigError:
        return dataclasses.replace(key, default=text, accepts="")
    return dataclasses.replace(key, default=text)


@functools.cache
def topic_properties_of(kafka_version: str) -> Mapping[str, ConfigKey]:
    """Every property of a topic that this persona shows, by name."""
    shown = profile_for(kafka_version)
    keys = {name: key for name, key in topic_properties().items() if name not in shown.gone_topic_properties}
    for name, accepts in shown.new_topic_bounds.items():
        keys[name] = dataclasses.replace(keys[name], accepts=accepts)
    return keys


def check_topic_properties(kafka_version: str, properties: Mapping[str, str]) -> None:
    """Raise INVALID_CONFIG for what this persona's topics cannot be set to, and those of others can."""
    shown, keys = profile_for(kafka_version), topic_properties_of(kafka_version)
    for name, text in properties.items():
        if name in shown.gone_topic_properties:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
        if name in shown.new_topic_bounds:
            try:
                keys[name].parse(text)
            except ConfigError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def with_defaults_of_persona(settings: BrokerSettings) -> BrokerSettings:
    """The settings in which what was not set is what the persona has it be."""
    plain = {one.name: one.default for one in dataclasses.fields(BrokerSettings)}
    changes = {}
    for name, text in profile_for(settings.kafka_version).new_defaults.items():
        field = field_name(name)
        left = field in plain and plain[field] not in ("", dataclasses.MISSING) and name not in settings.given
        if left and getattr(settings, field) == plain[field]:
            changes[field] = broker_properties()[name].parse(text)
    return dataclasses.replace(settings, **changes) if changes else settings  # type: ignore[arg-type]
