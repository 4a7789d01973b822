"""Actions of rules on processes: each is the action of its name, and what a node does to itself is left to it."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.control.front.rule_actions import RuleActions
from tests.anabranch.control.front.fronts import RecordedActions


@pytest.fixture
def recorded() -> RecordedActions:
    return RecordedActions()


@pytest.fixture
def rules(recorded: RecordedActions) -> RuleActions:
    acting: Any = recorded
    return RuleActions(acting)


async def test_action_on_another_node_is_applied(rules: RuleActions, recorded: RecordedActions) -> None:
    for what in ("kill", "stop", "start", "freeze", "expire", "suspend"):
        rules.apply(what, 2)
    await rules.wait_settled()
    names = [name for name, _ in recorded.done]
    assert names == ["kill", "stop", "start", "freeze", "expire_session", "suspend_session"]
    assert recorded.by_rule == ["freeze", "suspend_session"], "what a rule undoes is not taken for a request"


async def test_node_of_the_hit_stops_itself_but_cannot_cut_itself_off(
    rules: RuleActions, recorded: RecordedActions
) -> None:
    rules.hit_at = 2
    for what in ("kill", "stop", "freeze", "expire", "suspend"):
        rules.apply(what, 2)
    await rules.wait_settled()
    assert recorded.done == [("expire_session", 2), ("suspend_session", 2)]


async def test_what_was_requested_too_is_not_undone_by_a_rule(rules: RuleActions, recorded: RecordedActions) -> None:
    recorded.frozen_on_request.add(1)
    recorded.suspended_on_request.add(1)
    for node_id in (1, 2):
        rules.undo("freeze", node_id)
        rules.undo("suspend", node_id)
    await rules.wait_settled()
    assert recorded.done == [("thaw", 2), ("resume_session", 2)]
