"""Maps the distinguished name of a client certificate to a principal by rules (KIP-371).

    ssl.principal.mapping.rules = RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),.*$/$1/L, DEFAULT

The first rule whose pattern matches the whole name wins; `DEFAULT` takes the name unchanged. Patterns have Java's
syntax: `$1` and `(?<name>` are translated to Python's. Source: `SslPrincipalMapper`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from anabranch.broker.config.config_def import ConfigError

DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)"
)
_REFERENCE: Final = re.compile(r"\\(?P<escaped>.)|\$(?P<group>\d)")


class NoRule(Exception):
    """A distinguished name that no rule matches."""


class PrincipalRules:
    """The principal mapping rules of a listener."""

    def __init__(self, text: str) -> None:
        """Parse the rules. Raises ConfigError."""
        self._rules: list[Callable[[str], str | None]] = []
        position, text = 0, text.strip()
        while position < len(text):
            rule = _RULE.match(text, position)
            if rule is None:
                raise ConfigError(f"ssl.principal.mapping.rules: Invalid rule: {text[position:]!r}")
            position = rule.end()
            self._rules.append(_as_it_is if rule["default"] else _rule(rule))

    def user(self, distinguished_name: str) -> str:
        """Return the user's name. Raises NoRule."""
        for rule in self._rules:
            user = rule(distinguished_name)
            if user is not None:
                return user
        raise NoRule(f"no rule of ssl.principal.mapping.rules matches {distinguished_name!r}")


def _as_it_is(distinguished_name: str) -> str:
    return distinguished_name


def _rule(rule: re.Match[str]) -> Callable[[str], str | None]:
    try:
        pattern = re.compile(
            rule["pattern"].replace("\\/", "/").replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!")
        )
    except re.error as error:
        raise ConfigError(f"ssl.principal.mapping.rules: Invalid rule: {rule['pattern']!r}: {error}") from None
    replacement, case = rule["replacement"], rule["case"]

    def apply(distinguished_name: str) -> str | None:
        found = pattern.fullmatch(distinguished_name)
        if found is None:
            return None
        user = _REFERENCE.sub(lambda one: _expand(one, found), replacement)
        return user.lower() if case == "L" else user.upper() if case == "U" else user

    return apply


def _expand(reference: re.Match[str], found: re.Match[str]) -> str:
    """Expand `$1` or an escaped character; a reference to a missing group stays unchanged."""
    if reference["escaped"] is not None:
        return reference["escaped"]
    number = int(reference["group"])
    return found.group(number) or "" if number <= found.re.groups else reference.group()
