"""How settings look to DescribeConfigs and CreateTopics: name, text, type, and where the value comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from broker.config import (
    INERT_TOPIC_PROPERTIES,
    TOPIC_DEFAULTS,
    BrokerSettings,
    TopicConfig,
    property_name,
    topic_config,
)

DYNAMIC_TOPIC: Final = 1
STATIC_BROKER: Final = 4
DEFAULT: Final = 5

_TYPES: Final = {"bool": 1, "str": 2, "int": 5, "float": 6}
_LISTS: Final = frozenset({"cleanup_policy", "log_cleanup_policy", "roles"})
_LIST_TYPE: Final = 7
_NOT_DESCRIBED: Final = frozenset({"crash_at"})


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place where a value may come from."""

    name: str
    value: str
    source: int


@dataclass(frozen=True, slots=True)
class Property:
    """One effective property."""

    name: str
    value: str
    source: int
    type: int
    synonyms: tuple[Synonym, ...]
    """The places in order of precedence; the first gives the value."""
    documentation: str = ""


def described(settings: BrokerSettings, properties: Mapping[str, str]) -> list[Property]:
    """Every property of a topic, given what was set for the topic itself."""
    effective = topic_config(settings, properties)
    defaults = TopicConfig()
    rows = []
    for field in dataclasses.fields(TopicConfig):
        name, value = property_name(field.name), getattr(effective, field.name)
        synonyms = _synonyms_of_topic(settings, properties, field.name, getattr(defaults, field.name))
        rows.append(Property(name, text_of(value), synonyms[0].source, type_of(field), synonyms))
    rows += [
        Property(name, value, DYNAMIC_TOPIC, 2, (Synonym(name, value, DYNAMIC_TOPIC),))
        for name, value in properties.items()
        if name in INERT_TOPIC_PROPERTIES
    ]
    return rows


def described_broker(settings: BrokerSettings) -> list[Property]:
    """Every property of a broker."""
    defaults = BrokerSettings()
    rows = []
    for field in dataclasses.fields(BrokerSettings):
        if field.name not in _NOT_DESCRIBED:
            value, default = getattr(settings, field.name), getattr(defaults, field.name)
            synonyms = _synonyms_of_broker(property_name(field.name), value, default)
            rows.append(
                Property(property_name(field.name), text_of(value), synonyms[0].source, type_of(field), synonyms)
            )
    return rows


def text_of(value: Any) -> str:
    """A setting as it is written in a configuration."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def type_of(field: dataclasses.Field[Any]) -> int:
    """Kafka's number of the property's type: 1 boolean, 2 string, 5 long, 7 list."""
    return _LIST_TYPE if field.name in _LISTS else _TYPES.get(str(field.type), 2)


def _synonyms_of_topic(
    settings: BrokerSettings, properties: Mapping[str, str], field: str, default: Any
) -> tuple[Synonym, ...]:
    name, rows = property_name(field), []
    if name in properties:
        rows.append(Synonym(name, properties[name], DYNAMIC_TOPIC))
    if field in TOPIC_DEFAULTS:
        broker_name = property_name(TOPIC_DEFAULTS[field])
        rows += _synonyms_of_broker(broker_name, getattr(settings, TOPIC_DEFAULTS[field]), default)
    else:
        rows.append(Synonym(name, text_of(default), DEFAULT))
    return tuple(rows)


def _synonyms_of_broker(name: str, value: Any, default: Any) -> tuple[Synonym, ...]:
    given = (Synonym(name, text_of(value), STATIC_BROKER),) if value != default else ()
    return (*given, Synonym(name, text_of(default), DEFAULT))
