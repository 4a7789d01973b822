"""Parses the value of `sasl.jaas.config`: one of Kafka's login modules and its options, with users and passwords.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_alice="c";

Only three modules are known. Any other name is refused: in Kafka such a name is a class to be loaded, which let who
could alter configurations run code (CVE-2023-25194). No error quotes the text, as passwords stand in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": "OAUTHBEARER",
}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_USER: Final = "user_"
_TOKEN: Final = re.compile(
    r"""\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'|([^\s"'=;]+)|([=;]))""",
)
_ESCAPED: Final = {"n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A module and its options, without a repr: that of a `value` would print the options."""

    kind: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def passwords(self) -> dict[str, str]:
        """Return user -> password of the users that a broker with this module accepts."""
        return {name[len(_USER) :]: text for name, text in self.options.items() if name.startswith(_USER)}


def login_module(text: str) -> LoginModule:
    """Return the only module of a configuration. Raises ValueError."""
    words = _words(text)
    if words.count((";", True)) != 1 or words[-1] != (";", True):
        raise ValueError("sasl.jaas.config: expected one module and a semicolon after it")
    tokens = words[:-1]
    tokens += [("", True)] * (2 - len(tokens))
    (name, _), (flag, _), *rest = tokens
    kind = MODULES.get(name)
    if kind is None:
        raise ValueError(f"sasl.jaas.config: unknown module; the modules are {', '.join(MODULES)}")
    if flag.lower() not in _FLAGS:
        raise ValueError("sasl.jaas.config: `required` must follow the module")
    options: dict[str, str] = {}
    if len(rest) % 3:
        raise ValueError("sasl.jaas.config: an option is written name=value")
    for (option, sign), equals, (given, other_sign) in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if sign or other_sign or equals != ("=", True):
            raise ValueError("sasl.jaas.config: an option is written name=value")
        options[option] = given
    return LoginModule(kind, options)


def _words(text: str) -> list[tuple[str, bool]]:
    """Return each word, and whether it is a separator: a quoted semicolon is none."""
    words, position, end = [], 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError("sasl.jaas.config: an unterminated quotation")
        position = found.end()
        double, single, bare, sign = found.groups()
        quoted = double if double is not None else single
        if quoted is not None:
            words.append((re.sub(r"\\(.)", lambda one: _ESCAPED.get(one[1], one[1]), quoted), False))
        else:
            words.append((bare or sign, sign is not None))
    if not words:
        raise ValueError("sasl.jaas.config: no module")
    return words
