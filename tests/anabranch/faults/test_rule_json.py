"""A rule survives a JSON round trip; an invalid one is refused with a suggestion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.faults.rule import FIELDS, Rule
from anabranch.faults.rule_json import InvalidRule, from_json, schema, to_json

FULL = Rule(
    name="full", api=("Produce",), versions="3-9", brokers=(1, 2), listener="PLAINTEXT", address="127.0.0.1",
    principal="User:a", client_id="app-*", topic=("orders",), partition=(0, 1), group=("g",), transactional_id=("t",),
    producer_id=(7,), first=3, between_brokers=True, times=2, after=1, every=3, probability=0.5, until="45s",
    while_rule="other",
    node="stop", on=(2,), elect="unclean", stale_metadata=True, disk="full", link=("1:2",), step=("elect",),
    seed=4,
    error="REQUEST_TIMED_OUT", level="row", after_work=True, throttle_ms=5, edit={"throttle_time_ms": 1},
    delay_ms=(1.0, 2.0), hold=True, silence=True, half_open=True, disconnect="middle", truncate=1, corrupt="frame",
    wrong_correlation_id=True, drip=9,
)  # fmt: skip


def test_complete_rule_survives_the_round_trip() -> None:
    assert set(to_json(FULL)) == {field.name for field in FIELDS}
    assert from_json(json.loads(json.dumps(to_json(FULL)))) == FULL
    assert to_json(Rule()) == {} and from_json({}) == Rule()


def test_single_value_needs_no_list() -> None:
    rule = from_json({"api": "Produce", "partition": 3, "delay_ms": 50})
    assert (rule.api, rule.partition, rule.delay_ms) == (("Produce",), (3,), (50.0,))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([], "a rule is an object, such as"),
        ({"topics": "a"}, "a rule has no 'topics'; did you mean topic"),
        ({"zzz": 1}, "a rule has no 'zzz'; there are name, api, versions"),
        ({"api": 3}, "api is a string, not 3"),
        ({"partition": ["1"]}, "partition is a whole number, not '1'"),
        ({"times": True}, "times is a whole number, not True"),
        ({"hold": 1}, "hold is true or false, not 1"),
        ({"delay_ms": [1, "x"]}, "delay_ms is a number, not 'x'"),
        ({"edit": []}, "edit is an object of paths and values"),
    ],
)
def test_malformed_rule_is_refused(said: Any, reason: str) -> None:
    with pytest.raises(InvalidRule, match=reason.replace("[", r"\[")):
        from_json(said)


def test_schema_has_every_field() -> None:
    told = schema()
    assert list(told["properties"]) == [field.name for field in FIELDS]
    assert told["properties"]["disconnect"]["enum"] == ["before", "after", "middle"]
    assert told["properties"]["partition"]["oneOf"] == [
        {"type": "integer"},
        {"type": "array", "items": {"type": "integer"}},
    ]
    assert told["properties"]["edit"]["type"] == "object" and told["properties"]["hold"]["type"] == "boolean"
    assert all(one["description"] for one in told["properties"].values())
