"""The entries of DescribeConfigs responses: each property's value, its source and its synonyms.

Pure: computed from the layers of a `DynamicConfig` and the overrides of a topic. Follows Kafka's `ConfigHelper`, which
drops the synonyms that precede the first with the property's own name: a topic's `retention.ms` has no synonyms if the
broker sets only `log.retention.hours`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.broker_settings import field_name
from anabranch.broker.config.config_def import ConfigError, ConfigKey, Kind, Scope, UpdateMode, config_def, text_of
from anabranch.broker.config.dynamic_config import static_text
from anabranch.broker.config.effective_config import group_default
from anabranch.broker.config.storage_properties import SYNONYMS
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import BrokerSettings
    from anabranch.broker.config.dynamic_config import DynamicConfig

DYNAMIC_TOPIC: Final = 1
DYNAMIC_BROKER: Final = 2
DYNAMIC_DEFAULT_BROKER: Final = 3
STATIC_BROKER: Final = 4
DEFAULT: Final = 5
DYNAMIC_CLIENT_METRICS: Final = 7
DYNAMIC_GROUP: Final = 8

UNKNOWN_KIND: Final = 0
NO_EFFECT_DOCUMENTATION: Final = "Known to Kafka; without effect here."
LINEAGE: Final = {
    "reshard.base": "Linear hashing places keys over this: the odd part of the count that the topic began with.",
    "reshard.history": "GENERATION:COUNT of each resize, the present one last. Keys lie by the last count.",
}
"""Read-only properties of a resized topic, from which a client can compute the partition of a key."""


@value
class ConfigSynonym:
    """A property's value in one source, under one of its names."""

    name: str
    value: str | None
    source: int


@value
class ConfigEntry:
    """One property: its effective value and its synonyms in order of precedence."""

    name: str
    value: str | None
    source: int
    kind: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


def topic_entries(brokers: DynamicConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """The entries of all properties of a topic, given its overrides."""
    rows = []
    version = brokers.static.kafka_version
    for name, key in config_def(Scope.TOPIC).described_keys(version).items():
        synonyms = places(brokers, key.synonym) if key.synonym else []
        if name in overrides:
            synonyms.insert(0, ConfigSynonym(name, _normal(key, overrides[name]), DYNAMIC_TOPIC))
        text = overrides[name] if name in overrides else inherited_value(brokers, key)
        rows.append(
            ConfigEntry(
                name=name,
                value=_normal(key, text) if text is not None else None,
                source=synonyms[0].source if synonyms else DEFAULT,
                kind=key.kind,
                read_only=False,
                sensitive=False,
                synonyms=tuple(synonyms),
                documentation=key.documentation or documentation_of(version, key.synonym) or NO_EFFECT_DOCUMENTATION,
            )
        )
    return rows


def group_entries(settings: BrokerSettings, given: Mapping[str, str]) -> list[ConfigEntry]:
    """The entries of a group's properties; those whose broker default this version of Kafka lacks are omitted."""
    here = config_def(Scope.BROKER).described_keys(settings.kafka_version)
    return [
        _own_row(key, given.get(name), group_default(settings, key), DYNAMIC_GROUP)
        for name, key in config_def(Scope.GROUP).keys_by_name().items()
        if f"group.{name}" in here or not hasattr(settings, field_name(f"group.{name}"))
    ]


def subscription_entries(given: Mapping[str, str]) -> list[ConfigEntry]:
    """The entries of all properties of a client metrics subscription."""
    return [
        _own_row(key, _normal(key, given[name]) if name in given else None, key.default, DYNAMIC_CLIENT_METRICS)
        for name, key in config_def(Scope.CLIENT_METRICS).keys_by_name().items()
    ]


def lineage_entries(base: int, history: Sequence[tuple[int, int]]) -> list[ConfigEntry]:
    """The entries of a topic's published lineage; none for a topic that was never resized."""
    if len(history) < 2 or base < 1:
        return []
    steps = ",".join(f"{generation}:{count}" for generation, count in history)
    values = {"reshard.base": (Kind.INT, str(base)), "reshard.history": (Kind.LIST, steps)}
    return [
        ConfigEntry(
            name=name,
            value=values[name][1],
            source=DEFAULT,
            kind=values[name][0],
            read_only=True,
            sensitive=False,
            synonyms=(),
            documentation=documentation,
        )
        for name, documentation in LINEAGE.items()
    ]


def broker_entries(brokers: DynamicConfig) -> list[ConfigEntry]:
    """The entries of all properties of this broker, including unknown ones that are set."""
    version = brokers.static.kafka_version
    declared = config_def(Scope.BROKER)
    described = declared.described_keys(version)
    others = declared.keys_by_name().keys() - described.keys()
    names = dict.fromkeys([*described, *brokers.static.given, *brokers.default, *brokers.own])
    return [_broker_row(version, name, places(brokers, name)) for name in names if name not in others]


def cluster_default_entries(brokers: DynamicConfig) -> list[ConfigEntry]:
    """The entries of the dynamic properties of all brokers."""
    return [
        _broker_row(
            brokers.static.kafka_version,
            name,
            [one for one in places(brokers, name) if one.source == DYNAMIC_DEFAULT_BROKER],
            text,
        )
        for name, text in brokers.default.items()
    ]


def inherited_value(brokers: DynamicConfig, key: ConfigKey) -> str | None:
    """The value that a topic's property inherits."""
    if not key.synonym:
        return key.default
    field = field_name(key.synonym)
    if hasattr(brokers.current, field):
        return text_of(getattr(brokers.current, field))
    found = places(brokers, key.synonym)
    return found[0].value if found else key.default


def places(brokers: DynamicConfig, name: str) -> list[ConfigSynonym]:
    """The synonyms of a broker's property that are set, in order of precedence."""
    known = config_def(Scope.BROKER).described_keys(brokers.static.kafka_version)
    layers: tuple[tuple[int, Mapping[str, str]], ...] = (
        (DYNAMIC_BROKER, brokers.own),
        (DYNAMIC_DEFAULT_BROKER, brokers.default),
    )
    found = [
        ConfigSynonym(one, None if _sensitive(known.get(one)) else layer[one], source)
        for source, layer in layers
        for one in synonyms_of(name)
        if one in layer
    ]
    for one in synonyms_of(name):
        text = static_text(brokers.static, one)
        if text is not None:
            found.append(ConfigSynonym(one, None if _sensitive(known.get(one)) else text, STATIC_BROKER))
    for one in synonyms_of(name):
        key = known.get(one)
        if key is not None and key.default is not None:
            found.append(ConfigSynonym(one, None if key.sensitive else key.default, DEFAULT))
    first = next((place for place, one in enumerate(found) if one.name == name), len(found))
    return found[first:]


def synonyms_of(name: str) -> tuple[str, ...]:
    """The names of a property, in order of precedence."""
    return next((names for names in SYNONYMS.values() if name in names), (name,))


def documentation_of(kafka_version: str, name: str) -> str:
    """The documentation of a broker's property."""
    key = config_def(Scope.BROKER).described_keys(kafka_version).get(name)
    return key.documentation if key is not None else ""


def select_entries(rows: list[ConfigEntry], names: list[str] | None) -> Iterator[ConfigEntry]:
    """Select entries by name; all of them without names."""
    selected = set(names or ())
    return (row for row in rows if not selected or row.name in selected)


def _own_row(key: ConfigKey, text: str | None, default: str | None, source: int) -> ConfigEntry:
    """The entry of a property that inherits nothing; `text` is its own value."""
    return ConfigEntry(
        name=key.name,
        value=default if text is None else text,
        source=DEFAULT if text is None else source,
        kind=key.kind,
        read_only=False,
        sensitive=False,
        synonyms=() if text is None else (ConfigSynonym(key.name, text, source),),
        documentation=key.documentation,
    )


def _broker_row(kafka_version: str, name: str, synonyms: list[ConfigSynonym], text: str | None = None) -> ConfigEntry:
    key = config_def(Scope.BROKER).described_keys(kafka_version).get(name)
    shown = text if text is not None else synonyms[0].value if synonyms else None
    return ConfigEntry(
        name=name,
        value=None if _sensitive(key) or shown is None else _normal(key, shown),
        source=synonyms[0].source if synonyms else DEFAULT,
        kind=key.kind if key is not None else UNKNOWN_KIND,
        read_only=key is None or key.changes is UpdateMode.NEVER,
        sensitive=_sensitive(key),
        synonyms=tuple(synonyms),
        documentation=key.documentation or NO_EFFECT_DOCUMENTATION if key is not None else None,
    )


def _sensitive(key: ConfigKey | None) -> bool:
    """Whether a value is hidden. Kafka also hides values of unknown properties, which may be passwords."""
    return key is None or key.sensitive


def _normal(key: ConfigKey | None, text: str) -> str:
    try:
        return text if key is None else key.normal(text)
    except ConfigError:
        return text  # an invalid value in ZooKeeper is shown unchanged
