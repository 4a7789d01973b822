"""The command line refuses options that contradict each other, before it starts anything."""

from __future__ import annotations

import pytest

from anabranch.chaos.__main__ import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--login", "--member", "g=true"], "--login excludes --member"),
        (["--ungated"], "--ungated needs --member"),
        (["--shrink"], "--shrink needs --member"),
        (["--member", "g=true", "--member", "g=false"], "duplicate group"),
        (["--sharers", "3", "--kafka", "4.1"], "--sharers needs --kafka 4.2"),
        (["--control", "0.0.0.0:0"], "a non-loopback address needs --control-token"),
    ],
)
def test_contradictory_options_are_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("member", ["=true", "g=", "g", "a group=true"])
def test_member_without_a_group_and_a_command_is_refused(member: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--member", member])
    assert "is not GROUP=COMMAND" in capsys.readouterr().err
