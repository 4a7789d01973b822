"""Every scenario of a streams group gives its written result, and the README lists every phrase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.broker.coordinators.consumer_groups import reconciliation
from anabranch.broker.coordinators.streams_groups import streams_heartbeat
from anabranch.broker.coordinators.streams_groups.streams_member import StreamsMember
from anabranch.broker.coordinators.streams_groups.tasks import NO_TASKS, Tasks
from tests.broker.coordinators.streams_groups.scenarios.stage import FILES, StreamsStage
from tests.scenario_text import NotUnderstood, assert_phrases_known, assert_retold, retold

README = Path(__file__).parent / "scenarios" / "README.md"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_runs_as_written(path: Path) -> None:
    assert_retold(path, StreamsStage(), "tests.broker.coordinators.streams_groups.scenarios")


def test_every_phrase_is_in_the_readme_and_in_a_scenario() -> None:
    assert_phrases_known(StreamsStage, FILES, README)


def test_task_assigned_before_its_revocation_fails_the_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that assumes an early revocation changes the scenarios."""

    def hasty(member: StreamsMember, *, owned: Tasks | None, **rest: Any) -> StreamsMember:
        return reconciliation.reconcile(member, owned=owned or NO_TASKS, **rest)

    monkeypatch.setattr(streams_heartbeat, "reconcile", hasty)
    texts = {path.stem: path.read_text() for path in FILES}
    changed = {name: now for name, text in texts.items() if (now := rendered(text)) != text}
    assert {"second_instance_joins", "member_never_gives_up"} <= changed.keys()
    assert "BOTH" in changed["second_instance_joins"]


def rendered(text: str) -> str:
    try:
        return retold(text, StreamsStage())
    except NotUnderstood as error:  # it goes another way altogether
        return str(error)


def test_line_without_effect_is_refused() -> None:
    with pytest.raises(NotUnderstood, match="was told to give nothing up"):
        retold("given topic orders has 1 partitions\n> ann joins\n> ann gives up what it was told to\n", StreamsStage())
    with pytest.raises(NotUnderstood, match="standbys"):
        retold("given setting copies 5\n", StreamsStage())
