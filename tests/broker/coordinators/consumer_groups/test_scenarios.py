"""Every scenario of a KIP-848 group gives its written result, and the README lists every phrase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.broker.coordinators.consumer_groups import decision, reconciliation
from anabranch.broker.coordinators.consumer_groups.assignment import NOTHING, Assignment
from anabranch.broker.coordinators.consumer_groups.member import Member
from tests.broker.coordinators.consumer_groups.scenarios.stage import FILES, AssigningStage
from tests.scenario_text import NotUnderstood, assert_phrases_known, assert_retold, retold

README = Path(__file__).parent / "scenarios" / "README.md"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_runs_as_written(path: Path) -> None:
    assert_retold(path, AssigningStage(), "tests.broker.coordinators.consumer_groups.scenarios")


def test_every_phrase_is_in_the_readme_and_in_a_scenario() -> None:
    assert_phrases_known(AssigningStage, FILES, README)


def test_partition_assigned_before_its_revocation_fails_the_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that assumes an early revocation changes the scenarios."""

    def hasty(member: Member, *, owned: Assignment | None, **rest: Any) -> Member:
        return reconciliation.reconcile(member, owned=owned or NOTHING, **rest)

    monkeypatch.setattr(decision, "reconcile", hasty)
    texts = {path.stem: path.read_text() for path in FILES}
    changed = {name: now for name, text in texts.items() if (now := retold(text, AssigningStage())) != text}
    assert {"second_member_waits", "member_never_gives_up"} <= changed.keys()
    assert "BOTH" in changed["second_member_waits"]


def test_line_without_effect_is_refused() -> None:
    with pytest.raises(NotUnderstood, match="was told to give nothing up"):
        retold(
            "given topic orders has 1 partitions\n> ann joins\n> ann gives up what it was told to\n", AssigningStage()
        )
    with pytest.raises(NotUnderstood, match="session_timeout_ms"):
        retold("given setting session 5\n", AssigningStage())
