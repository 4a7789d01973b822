"""Rules are read from JSON and TOML; an invalid file is refused with the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.faults.rule import Rule
from anabranch.faults.rule_file import read_rules
from anabranch.faults.rule_json import InvalidRule

TWO = [Rule(api=("Produce",), error="REQUEST_TIMED_OUT"), Rule(name="slow", delay_ms=(10.0, 20.0))]
JSON = '[{"api": "Produce", "error": "REQUEST_TIMED_OUT"}, {"name": "slow", "delay_ms": [10, 20]}]'
TOML = """
[[rules]]
api = "Produce"
error = "REQUEST_TIMED_OUT"

[[rules]]
name = "slow"
delay_ms = [10, 20]
"""


@pytest.mark.parametrize(("name", "content"), [("a.json", JSON), ("b.json", f'{{"rules": {JSON}}}'), ("c.toml", TOML)])
def test_rules_are_read_in_order(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert read_rules(tmp_path / name) == TWO


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", "[", "neither JSON nor"),
        ("a.toml", "x", "neither JSON nor"),
        ("a.json", "{}", "has no list of rules"),
        ("a.json", '[{"hold": true}, {"topics": "a"}]', "rule 2: a rule has no 'topics'; did you mean topic"),
    ],
)
def test_invalid_rules_file_is_refused(name: str, content: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidRule, match=reason):
        read_rules(tmp_path / name)
