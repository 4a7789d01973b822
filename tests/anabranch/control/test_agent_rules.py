"""An agent refuses rules that need another node, and says why."""

from __future__ import annotations

import pytest

from anabranch.control.agent_rules import refuse_unsupported
from anabranch.faults.rule import Rule
from anabranch.faults.rule_json import InvalidRule, from_json


def rule(**fields: object) -> Rule:
    return from_json({"api": "Produce", **fields})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"brokers": [2, 3], "delay_ms": 1}, "agent of node 1, which the rule is not about"),
        ({"link": "2:3", "delay_ms": 1}, "no link of the rule ends there"),
        ({"node": "start", "on": 1}, "cannot start another one"),
        ({"node": "expire"}, "cannot end its ZooKeeper session"),
        ({"node": "suspend"}, "cannot cut its own connection"),
        ({"node": "kill", "on": 2}, "acts on its own node only"),
        ({"node": "kill", "on": [1, 2]}, "acts on its own node only"),
    ],
)
def test_rule_that_needs_another_node_is_refused_with_the_reason(fields: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidRule, match=f"{says}.*anabranch control serve"):
        refuse_unsupported(rule(**fields), 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"brokers": [1, 2], "delay_ms": 1},
        {"link": ["1:2", "3:4"], "delay_ms": 1},
        {"link": "*:2", "delay_ms": 1},
        {"node": "kill"},
        {"node": "stop", "on": 1},
        {"node": "freeze"},
    ],
)
def test_rule_about_this_node_is_accepted(fields: dict[str, object]) -> None:
    refuse_unsupported(rule(**fields), 1)


def test_action_on_another_node_is_accepted_if_the_front_applies_it() -> None:
    refuse_unsupported(rule(node="expire"), 1, has_front=True)
    refuse_unsupported(rule(node="kill", on=2), 1, has_front=True)


def test_action_on_another_node_at_a_step_is_refused_with_a_front_too() -> None:
    with pytest.raises(InvalidRule, match="acts on its own node only"):
        refuse_unsupported(from_json({"step": "elect", "node": "kill", "on": 2}), 1, has_front=True)
