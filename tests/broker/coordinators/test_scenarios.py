"""Every scenario of a group gives its written result, and the README lists all phrases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.broker.coordinators.classic_groups import rebalance
from tests.broker.coordinators.scenarios.stage import FILES, GroupStage
from tests.scenario_text import NotUnderstood, assert_phrases_known, assert_retold, retold

README = Path(__file__).parent / "scenarios" / "README.md"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_runs_as_written(path: Path) -> None:
    assert_retold(path, GroupStage(), "tests.broker.coordinators.scenarios")


def test_every_phrase_is_in_the_readme_and_in_a_scenario() -> None:
    assert_phrases_known(GroupStage, FILES, README)


def test_changed_group_behaviour_fails_the_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    """An assignment that is sent before it is journaled changes the scenarios."""

    def hasty(group: Any, event: Any, now_ms: int) -> None:
        sync(group, event, now_ms)
        if group.assignment_phase.proposed:
            group.become_stable()
            rebalance.answer_syncs(group, rebalance.ErrorCode.NONE, now_ms)

    sync = rebalance.sync
    monkeypatch.setattr(rebalance, "sync", hasty)
    texts = {path.stem: path.read_text() for path in FILES}
    changed = {name for name, text in texts.items() if retold(text, GroupStage()) != text}
    assert {"assignment_not_stored", "two_members_join", "failover_in_the_middle_of_a_rebalance"} <= changed


def test_line_without_effect_is_refused() -> None:
    with pytest.raises(NotUnderstood, match=r"line 1: .*none of the phrases; perhaps one of \['CLIENT joins'"):
        retold("> ann joinz\n", GroupStage())
    with pytest.raises(NotUnderstood, match="the journal was given nothing"):
        retold("> the journal takes what it was given\n", GroupStage())
    with pytest.raises(NotUnderstood, match="initial_rebalance_delay_ms"):
        retold("given setting delay 5\n", GroupStage())
