"""Parses and writes Java properties files, such as server.properties of a broker or client.properties of a tool.

    # a comment
    listeners = SASL_SSL://127.0.0.1:9093
    sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required \\
        username="alice" password="secret";

Source: `java.util.Properties.load`, without `\\u` escapes in names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from anabranch.broker.config.config_def import ConfigError

_PAIR: Final = re.compile(r"(?P<name>(?:\\.|[^\\\s=:])+)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)
_AT_THE_END: Final = re.compile(r"(?<!\\)\s+$")
_ESCAPED: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SIGNS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def properties_of(path: str | None, pairs: Sequence[str]) -> dict[str, str]:
    """Read the properties of a file, overridden by `NAME=VALUE` options. Raises ConfigError."""
    given = {}
    if path is not None:
        try:
            given = properties_in(Path(path).read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return {**given, **parse_properties(pairs)}


def parse_properties(pairs: Sequence[str]) -> dict[str, str]:
    """Parse options: `["num.partitions=3"]` -> `{"num.partitions": "3"}`. Raises ConfigError."""
    properties = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{pair!r} is not a setting; write NAME=VALUE, for example num.partitions=3")
        properties[name.strip()] = text.strip()
    return properties


def properties_in(text: str) -> dict[str, str]:
    """Parse the text of a properties file; of two equal names the last takes precedence."""
    properties = {}
    lines = iter(text.splitlines())
    for line in lines:
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip()
        pair = _PAIR.fullmatch(line)
        if pair is not None:
            properties[_plain(pair["name"])] = _plain(_AT_THE_END.sub("", pair["value"]))
    return properties


def properties_text(properties: Mapping[str, str]) -> str:
    """Format properties as the text of a file; the inverse of `properties_in`."""
    return "".join(f"{_escape(name)}={_escape(value)}\n" for name, value in properties.items())


def _escape(text: str) -> str:
    return re.sub(r"[\\\s=:#!]|[^ -~]", lambda one: f"\\u{ord(one[0]):04x}" if ord(one[0]) < 65536 else one[0], text)


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda one: chr(int(one[1][1:], 16)) if len(one[1]) > 1 else _SIGNS.get(one[1], one[1]), text)
