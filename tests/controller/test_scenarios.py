"""Every scenario gives its written result, and the README lists all phrases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controller.scenarios.stage import FILES, ControllerStage
from tests.scenario_text import NotUnderstood, assert_phrases_known, assert_retold, retold

README = Path(__file__).parent / "scenarios" / "README.md"
SETUP = "given brokers 1,2\ngiven topic orders on 1,2\ngiven a controller is elected\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_matches_controller(path: Path) -> None:
    assert_retold(path, ControllerStage(), "tests.controller.scenarios")


def test_readme_lists_every_phrase_and_a_scenario_uses_it() -> None:
    assert_phrases_known(ControllerStage, FILES, README)


def test_every_resize_step_has_a_scenario_with_controller_crash() -> None:
    text = "\n".join(path.read_text() for path in FILES)
    for step in ("plan", "create:1", "seal:1", "bump:1", "publish"):
        assert f"the controller will die at resize:after-{step}\n" in text
    for step in ("remove:after-retire", "remove:after-remove", "reassign:after-begin", "reassign:after-complete"):
        assert f"the controller will die at {step}\n" in text


def test_changed_effect_fails_scenario() -> None:
    text = SETUP + "> broker 1 dies\n"
    played = retold(text, ControllerStage())
    assert "  write lose: orders-0 leader 2 epoch 1 isr 2\n" in played
    wrong = played.replace("epoch 1", "epoch 0")
    assert retold(wrong, ControllerStage()) == played != wrong


def test_unreached_step_is_an_error() -> None:
    text = SETUP + "given the controller will die at resize:after-seal\n> an admin asks for 2 partitions of orders\n"
    with pytest.raises(NotUnderstood, match=r"line 5: .*has not come there"):
        retold(text, ControllerStage())


def test_timer_that_is_not_set_does_not_fire() -> None:
    with pytest.raises(NotUnderstood, match="the controller has set"):
        retold(SETUP + "> timer preferred fires\n", ControllerStage())
