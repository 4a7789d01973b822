"""With several rules for one request, the overruling one is known; equal effects overrule nothing."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.faults.conflicts import overridden_rules
from anabranch.faults.rule_json import from_json

ROWS = [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"error": "REQUEST_TIMED_OUT"}, {"error": "NOT_LEADER_OR_FOLLOWER"}, ["second"]),
        ({"error": "REQUEST_TIMED_OUT", "partition": 0}, {"error": "NOT_LEADER_OR_FOLLOWER", "partition": 1}, []),
        ({"error": "REQUEST_TIMED_OUT"}, {"delay_ms": 5}, []),
        ({"delay_ms": 5}, {"delay_ms": 5}, []),
        ({"throttle_ms": 5}, {"throttle_ms": 7}, ["second"]),
        ({"edit": {"a": 1}}, {"edit": {"a": 2}}, ["second"]),
        ({"edit": {"a": 1}}, {"edit": {"b": 2}}, []),
        ({"truncate": 1}, {"wrong_correlation_id": True}, []),
        ({"error": "REQUEST_TIMED_OUT", "after_work": True}, {"disconnect": "before"}, ["first"]),
        ({"error": "REQUEST_TIMED_OUT", "after_work": True}, {"node": "kill"}, ["first"]),
        ({"error": "REQUEST_TIMED_OUT"}, {"node": "kill", "on": 2}, []),
        ({"disconnect": "after"}, {"error": "REQUEST_TIMED_OUT"}, ["second"]),
        ({"disconnect": "after"}, {"silence": True}, ["first"]),
        ({"delay_ms": 5}, {"silence": True}, []),
        ({"disconnect": "middle"}, {"silence": True}, ["first"]),
    ],
)
def test_overridden_rules_are_reported(first: dict[str, Any], second: dict[str, Any], expected: list[str]) -> None:
    rules = [from_json({"name": name, **said}) for name, said in (("first", first), ("second", second))]
    assert overridden_rules(rules, ROWS) == expected
