"""The declaration of all configuration properties of brokers, topics, groups and metrics subscriptions (ConfigDef).

Three tables, `node_properties`, `storage_properties` and `coordinator_properties`, are the source of parsing,
validation, DescribeConfigs, IncrementalAlterConfigs and the defaults of `broker.config.broker_settings`. A table is
text with one line per property:

    name versions | kind | default | accepts | update mode, or the broker's property of a topic's | documentation

versions  Kafka's versions that have it: none: all; "4.0..": since 4.0; "..3.9": until 3.9; "internal": none.
          A property that changes between versions has a line for each.
kind      Kafka's (`ConfigDef.Type`), with the numbers in DescribeConfigs
default   "-": none; otherwise this text, which may be empty
accepts   "14..": at least 14; "0..1": a range; "a, b": one of these, or for a list any of these; "-1 or 1..9": either
update    "": read-only; "broker": dynamic, per broker; "cluster": dynamic, per broker or cluster-wide (KIP-226)

A line in brackets begins a section, and names the resource of the properties below it, such as [topic]. Properties in
[broker: REASON] are parsed and described, but have no effect, for this reason. In [broker refused: REASON] only the
default is accepted: with another value the broker does not start, and the topic is not created or altered.

To implement a property, move its line to a section without a reason, document it, and add the field of its name to
`BrokerSettings` or `TopicConfig`. Where the fifth column of a topic's property names a broker's property, the topic
inherits that property's value, and both lines must have the same default.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from anabranch.broker.config.coordinator_properties import COORDINATORS
from anabranch.broker.config.node_properties import NODE
from anabranch.broker.config.storage_properties import STORAGE
from anabranch.protocol.values import value

REFERENCE_VERSION: Final = "3.9"
"""The default version of Kafka for lookups."""


class ConfigError(ValueError):
    """An invalid property; the message names it and a valid value."""


class Kind(enum.IntEnum):
    """The type of a property's values, with Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(enum.Enum):
    """Whether a broker's property can change at run time, per broker or cluster-wide (KIP-226)."""

    NEVER = ""
    PER_BROKER = "broker"
    ANYWHERE = "cluster"


class Scope(enum.Enum):
    """The kind of resource that a property belongs to."""

    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"


_BITS: Final = {Kind.INT: 32, Kind.SHORT: 16, Kind.LONG: 64}
_SECTION: Final = re.compile(r"\[(?P<scope>[\w-]+)(?P<refused> refused)?(: (?P<reason>.+))?\].*")
_UPDATE_MODES: Final = {mode.value: mode for mode in UpdateMode}
_INTERNAL: Final = "internal"
Parsed = bool | int | float | str


@value
class ConfigKey:
    """One declared property: one line of a table."""

    name: str
    kind: Kind
    default: str | None
    accepts: str = ""
    changes: UpdateMode = UpdateMode.NEVER
    synonym: str = ""
    """The broker's property from which a topic inherits."""
    documentation: str = ""
    versions: str = ""
    without_effect: str = ""
    """Why the property has no effect; empty: it has one."""
    refused: bool = False
    """Whether only the default is accepted."""

    @property
    def sensitive(self) -> bool:
        """Whether responses and logs omit the value."""
        return self.kind is Kind.PASSWORD

    @property
    def internal(self) -> bool:
        """Whether no version of Kafka describes it."""
        return self.versions == _INTERNAL

    def is_in(self, version: str) -> bool:
        """Whether this version of Kafka describes it."""
        since, _, until = self.versions.partition("..")
        return not self.internal and since <= version <= (until or version)  # no part of a version has two digits

    def parse(self, text: str) -> Parsed:
        """Parse and validate a text. Raises ConfigError."""
        text = text.strip()
        if self.kind is Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ConfigError(f"{self.name}={text!r} must be true or false")
            return text.lower() == "true"
        if self.kind in _BITS:
            return self._number(text)
        if self.kind is Kind.DOUBLE:
            return self._ratio(text)
        if self.kind is Kind.LIST:
            return self._list(text)
        if self.accepts and text not in self.choices:
            raise ConfigError(f"{self.name}={text!r} must be one of {', '.join(self.choices)}")
        return text

    def normal(self, text: str) -> str:
        """Normalize a text: `TRUE ` becomes `true`. Raises ConfigError."""
        return text_of(self.parse(text))

    @property
    def choices(self) -> tuple[str, ...]:
        """The valid texts of a value, or of each part of a list; empty: any."""
        return tuple(one.strip() for one in self.accepts.split(",") if one.strip())

    def _number(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ConfigError(f"{self.name}={text!r} must be a whole number") from None
        limit = 1 << _BITS[self.kind] - 1
        if not -limit <= number < limit or (self.accepts and not _within(self.accepts, number)):
            allowed = _range(self.accepts) if self.accepts else f"between {-limit} and {limit - 1}"
            raise ConfigError(f"{self.name}={text} must be {allowed}")
        return number

    def _ratio(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            raise ConfigError(f"{self.name}={text!r} must be a number") from None
        if self.accepts and not _within(self.accepts, number):
            raise ConfigError(f"{self.name}={text} must be {_range(self.accepts)}")
        return number

    def _list(self, text: str) -> str:
        parts = [part.strip() for part in text.split(",")] if text else []
        for part in parts:
            if self.accepts == "PARTITION:BROKER":
                known = text == "*" or all(number.isdecimal() for number in (*part.split(":"), "x")[:2])
            else:
                known = not self.choices or part in self.choices
            if not known:
                raise ConfigError(f"{self.name}={text!r} must be one of {self.accepts}")
        return ",".join(parts)


class ConfigDef:
    """The declared properties of one kind of resource."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self._keys = sorted(keys, key=lambda key: key.name)
        self._known: dict[str, Mapping[str, ConfigKey]] = {}
        self._described: dict[str, Mapping[str, ConfigKey]] = {}

    def keys_by_name(self, version: str = REFERENCE_VERSION) -> Mapping[str, ConfigKey]:
        """All properties by name: as this version of Kafka declares them, else as the first line in the table does."""
        if version not in self._known:
            first = {key.name: key for key in reversed(self._keys)}
            self._known[version] = {name: self.described_keys(version).get(name, first[name]) for name in sorted(first)}
        return self._known[version]

    def described_keys(self, version: str) -> Mapping[str, ConfigKey]:
        """The properties that this version of Kafka describes, by name."""
        if version not in self._described:
            self._described[version] = {key.name: key for key in self._keys if key.is_in(version)}
        return self._described[version]


def config_def(scope: Scope) -> ConfigDef:
    """The declared properties of one kind of resource."""
    return _definitions()[scope]


@functools.cache
def _definitions() -> Mapping[Scope, ConfigDef]:
    keys: dict[Scope, list[ConfigKey]] = {scope: [] for scope in Scope}
    for text in (NODE, STORAGE, COORDINATORS):
        for scope, key in _keys(text):
            keys[scope].append(key)
    return {scope: ConfigDef(found) for scope, found in keys.items()}


def _keys(text: str) -> Iterator[tuple[Scope, ConfigKey]]:
    scope, reason, refused = Scope.BROKER, "", False
    for line in filter(None, text.splitlines()):
        section = _SECTION.fullmatch(line)
        if section is not None:
            scope, reason = Scope(section["scope"]), section["reason"] or ""
            refused = section["refused"] is not None
            continue
        name, kind, default, accepts, changes, documentation = _columns(line)
        name, _, versions = name.partition(" ")
        yield (
            scope,
            ConfigKey(
                name=name,
                kind=Kind[kind.upper()],
                default=None if default == "-" else default,
                accepts=accepts,
                changes=_UPDATE_MODES.get(changes, UpdateMode.NEVER),
                synonym="" if changes in _UPDATE_MODES else changes,
                documentation=documentation,
                versions=versions,
                without_effect=reason,
                refused=refused,
            ),
        )


def _columns(line: str) -> list[str]:
    columns = [column.strip() for column in line.split("|", 5)]
    return columns + [""] * (6 - len(columns))


def text_of(value: object) -> str:
    """Format a parsed value as the text of a property."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _within(accepts: str, number: float) -> bool:
    for one in accepts.split(" or "):
        least, dots, most = one.partition("..")
        if (not dots and number == float(one)) or (dots and float(least) <= number <= float(most or "inf")):
            return True
    return False


def _range(accepts: str) -> str:
    least, dots, most = accepts.partition("..")
    if " or " in accepts or not dots:
        return accepts
    return f"between {least} and {most}" if most else f"at least {least}"
