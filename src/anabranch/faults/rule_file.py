"""Reads rules from a file: a list in JSON, or `[[rules]]` in TOML."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.faults.rule_json import InvalidRule, from_json

if TYPE_CHECKING:
    from anabranch.faults.rule import Rule


def read_rules(path: str | Path) -> list[Rule]:
    """Read the rules of a file, in order. InvalidRule names the invalid one, and the cause."""
    path = Path(path)
    try:
        content = path.read_text(encoding="utf-8")
        parsed: Any = tomllib.loads(content) if path.suffix == ".toml" else json.loads(content)
    except ValueError as error:
        raise InvalidRule(f"{path} is neither JSON nor TOML (*.toml): {error}") from None
    if isinstance(parsed, dict):
        parsed = parsed.get("rules")
    if not isinstance(parsed, list):
        raise InvalidRule(f'{path} has no list of rules, such as [{{"api": "Produce", "error": "REQUEST_TIMED_OUT"}}]')
    rules = []
    for number, one in enumerate(parsed, start=1):
        try:
            rules.append(from_json(one))
        except InvalidRule as error:
            raise InvalidRule(f"{path}, rule {number}: {error}") from None
    return rules
