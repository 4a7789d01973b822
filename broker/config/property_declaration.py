"""The declaration of a property: its name, kind, accepted values, default, and whether it may change at run time.

The two tables, `broker.config.topic_properties` and `broker.config.broker_properties`, are text of one line per
property, so that three hundred of them read like a page and are parsed only when one is asked for:

    name | kind | default | accepts | changes or broker's property | what it does

default   "-" none; otherwise that of the settings field that bears its name ("="), or this text, which may be empty
accepts   "14.." at least 14; "0..1" between; "a, b" one of these, or for a list some of these; "-1 or 1..9" either
kinds     Kafka's (`ConfigDef.Type`), with the numbers that DescribeConfigs uses
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Final

from anabranch.protocol.values import value


class ConfigError(ValueError):
    """A setting that cannot be used; the message says which and what to write instead."""


class Kind(enum.IntEnum):
    """The kind of a property's values, by Kafka's numbers."""

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
    """Where a broker's property may be changed while the broker runs (KIP-226)."""

    NEVER = ""
    PER_BROKER = "broker"
    ANYWHERE = "cluster"


_BITS: Final = {Kind.INT: 32, Kind.SHORT: 16, Kind.LONG: 64}
Parsed = bool | int | float | str


@value
class ConfigKey:
    """One declared property."""

    name: str
    kind: Kind
    default: str | None
    accepts: str = ""
    changes: UpdateMode = UpdateMode.NEVER
    synonym: str = ""
    """The broker's property that gives a topic's default."""
    documentation: str = ""

    @property
    def sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.kind is Kind.PASSWORD

    def parse(self, text: str) -> Parsed:
        """The value that a text stands for. Raises ConfigError."""
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
        """The value as a configuration writes it: `TRUE ` is `true`."""
        return text_of(self.parse(text))

    @property
    def choices(self) -> tuple[str, ...]:
        """The texts that a value, or each part of a list, may be; empty: any."""
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


def table(text: str, own_default: Callable[[str], str | None]) -> dict[str, ConfigKey]:
    """The properties of a table, by name; `own_default` is the text of the default of the field of a name, if any."""
    keys = {}
    for name, kind, default, accepts, changes, documentation in _rows(text):
        known = {changes_.value: changes_ for changes_ in UpdateMode}
        keys[name] = ConfigKey(
            name=name,
            kind=Kind[kind.upper()],
            default=None if default == "-" else own_default(name) or default,
            accepts=accepts,
            changes=known.get(changes, UpdateMode.NEVER),
            synonym="" if changes in known else changes,
            documentation=documentation,
        )
    return keys


def text_of(value: object) -> str:
    """A setting as it is written in a configuration."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def parse_properties(pairs: list[str] | tuple[str, ...]) -> dict[str, str]:
    """`["num.partitions=3"]` -> `{"num.partitions": "3"}`."""
    properties = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{pair!r} is not a setting; write NAME=VALUE, for example num.partitions=3")
        properties[name.strip()] = text.strip()
    return properties


def _rows(text: str) -> Iterator[list[str]]:
    for line in text.strip().splitlines():
        columns = [column.strip() for column in line.split("|", 5)]
        yield columns + [""] * (6 - len(columns))


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
