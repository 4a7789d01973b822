"""A rule's text has its fields and nothing else."""

from __future__ import annotations

import pytest

from anabranch.faults.rule import FIELDS, Rule, is_set, rule_text


def test_unset_fields_are_not_set() -> None:
    rule = Rule(api=("Produce", "Fetch"), error="REQUEST_TIMED_OUT", edit={"a[*].b": 1}, hold=True)
    assert {field.name for field in FIELDS if is_set(rule, field.name)} == {"api", "error", "edit", "hold"}
    assert rule_text(rule) == "api=Produce,Fetch error=REQUEST_TIMED_OUT edit=a[*].b=1 hold"
    assert not any(is_set(Rule(), field.name) for field in FIELDS)
    assert Rule(delay_ms=(5.0,)) == Rule(delay_ms=(5.0,)) != Rule(delay_ms=(6.0,))
    with pytest.raises(AttributeError):
        rule.times = 3  # type: ignore[misc]


def test_every_field_has_help() -> None:
    assert all(field.metadata["help"] and field.metadata["part"] for field in FIELDS)
