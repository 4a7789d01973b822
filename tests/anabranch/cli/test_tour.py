"""`anabranch tour` runs a story step by step on its own cluster; a false claim is an error."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from anabranch.cli.main import cli
from anabranch.control.client import ControlClient
from anabranch.control.tour_client import TourClient


def test_tour_runs_on_its_own_cluster_without_the_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_CONTROL_TOKEN", "of another cluster")
    shown = CliRunner().invoke(cli, ["tour", "leader", "--no-wait"])
    assert shown.exit_code == 0, shown.output
    for word in ("4/4", "The leader is dead", "control.nodes[", ".kill()", "✓ another node of the ISR leads"):
        assert word in shown.output
    assert "✗" not in shown.output


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "anabranch tour STORY runs one"),
        (["nothing"], "there is no story nothing; there are one"),
        (["one", "--no-wait"], "a claim of a story failed"),
    ],
)
def test_tour_output_has_steps_and_errors(words: list[str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = {"number": 1, "steps": 1, "title": "T", "text": "Text", "look": "cluster", "deeds": [], "over": False}
    answers = {
        "GET /v1/tour": {"stories": [{"story": "one", "title": "One", "summary": "S", "steps": 1}]},
        "POST /v1/tour/one": {**step, "claims": [{"text": "it is so", "holds": False}]},
        "POST /v1/tour/next": {"over": True},
        "DELETE /v1/tour": {},
    }
    tour = TourClient(lambda method, path, **_: answers[f"{method} {path}"])
    monkeypatch.setattr(ControlClient, "tour", property(lambda _: tour))
    shown = CliRunner().invoke(cli, ["tour", *words, "--control", "http://127.0.0.1:1"])
    assert expected in shown.output
    assert (shown.exit_code == 0) == (not words)
