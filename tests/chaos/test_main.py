"""The command line refuses options that contradict each other, before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.chaos.__main__ import main
from anabranch.cluster.zookeeper import ZooKeeperUnavailable


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--login", "--member", "g=true"], "--login excludes --member"),
        (["--ungated"], "--ungated needs --member"),
        (["--shrink"], "--shrink needs --member"),
        (["--totals", __file__], "was not written by chaos runs"),
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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--duration", "0"], "argument --duration: 0 is not above 0"),
        (["--pace", "0"], "argument --pace: 0 is not above 0"),
        (["--rate", "nan"], "argument --rate: nan is not above 0"),
        (["--sharers", "-2"], "argument --sharers: -2 is negative"),
        (["--member", "g=python 'it"], "No closing quotation"),
    ],
)
def test_impossible_values_are_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", *words])
    assert says in capsys.readouterr().err


def test_directory_with_files_of_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "node-1").mkdir()
    with pytest.raises(SystemExit):
        main(["run", "--directory", str(tmp_path)])
    assert "contains other files; name a new or empty directory" in capsys.readouterr().err


def test_machine_without_zookeeper_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def cannot_start(*_: object, **__: object) -> None:
        raise ZooKeeperUnavailable("Java 11 or newer is needed")

    monkeypatch.setattr("anabranch.chaos.run.chaos", cannot_start)
    assert main(["run", "--duration", "1"]) == 2
    assert capsys.readouterr().err == "chaos: Java 11 or newer is needed\n"
