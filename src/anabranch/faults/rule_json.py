"""The JSON codec of rules, and their JSON Schema.

A list of one element may be written without the list: `{"topic": "orders"}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args, get_origin

from anabranch.faults.rule import FIELDS, HINTS, Rule, is_set
from anabranch.protocol.suggestion import suggest

NAMES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
SAID: Final = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


class InvalidRule(ValueError):
    """Invalid input for a rule, or a rule that can never hit; the message suggests a correction."""


def to_json(rule: Rule) -> dict[str, Any]:
    """The fields of a rule that are set."""
    found = {field.name: getattr(rule, field.name) for field in FIELDS if is_set(rule, field.name)}
    return {
        name: list(one) if isinstance(one, tuple) else dict(one) if isinstance(one, Mapping) else one
        for name, one in found.items()
    }


def from_json(value: object) -> Rule:
    """Decode a rule. InvalidRule names the error."""
    if not isinstance(value, Mapping):
        raise InvalidRule(
            f'a rule is an object, such as {{"api": "Produce", "error": "REQUEST_TIMED_OUT"}}, not {value!r}'
        )
    for name in value:
        if name not in HINTS:
            raise InvalidRule(f"a rule has no {name!r}; {suggest(str(name), HINTS)}")
    return Rule(**{str(name): _read(str(name), one) for name, one in value.items()})


def check_given(rule: object, fields: Mapping[str, Any]) -> None:
    """Check that a rule is given whole or by its fields. Raises InvalidRule."""
    if rule is not None and not isinstance(rule, Rule):
        raise InvalidRule(f'a rule is a Rule, or its fields, such as api="Produce", hold=True; not {rule!r}')
    if rule is not None and fields:
        raise InvalidRule(f"a Rule has all of its fields: set {', '.join(fields)} there")


def _read(name: str, value: Any) -> Any:
    hint = HINTS[name]
    if get_origin(hint) is tuple:
        kind = get_args(hint)[0]
        return tuple(_one(name, kind, one) for one in (value if isinstance(value, list | tuple) else [value]))
    if hint in NAMES:
        return _one(name, hint, value)
    if not isinstance(value, Mapping):
        raise InvalidRule(f"{name} is an object of paths and values, not {value!r}")
    return {str(path): one for path, one in value.items()}


def _one(name: str, kind: type[Any], value: Any) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise InvalidRule(f"{name} is {SAID[kind]}, not {value!r}")
    return value


def schema() -> dict[str, Any]:
    """The JSON Schema of a rule."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {field.name: _schema(field.name, field.metadata) for field in FIELDS},
    }


def _schema(name: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    hint, described = HINTS[name], {"description": metadata["help"]}
    if get_origin(hint) is tuple:
        one = {"type": NAMES[get_args(hint)[0]]}
        return {**described, "oneOf": [one, {"type": "array", "items": one}]}
    if hint not in NAMES:
        return {**described, "type": "object"}
    return {**described, "type": NAMES[hint]} | ({"enum": list(metadata["one_of"])} if metadata["one_of"] else {})
