"""Options of `up` from a file: the command line has priority; unknown options are refused."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from anabranch.cli.options_file import options_file
from tests.anabranch.cli.conftest import Command
from tests.running import running

SAID = """\
brokers = 2
port = 0
control = "127.0.0.1:0"
control_journal = 10

[config]
"num.partitions" = 4
"auto.create.topics.enable" = false
"""


@click.command
@click.option("--options", is_eager=True, expose_value=False, callback=options_file)
@click.option("--brokers", type=click.IntRange(1, 9))
@click.option("--config", "--set", multiple=True)
@click.option("--from", "snapshot")
@click.option("--processes", is_flag=True)
def taking(**given: object) -> None:
    click.echo(given)


def given(path: Path, said: str, *words: str) -> str:
    path.write_text(said)
    result = CliRunner().invoke(taking, ["--options", str(path), *words])
    return result.output.strip().removeprefix("Usage: taking [OPTIONS]\nTry 'taking --help' for help.\n\n")


@pytest.mark.parametrize(
    ("said", "words", "expected"),
    [
        ("", (), {}),
        ("brokers = 3", (), {"brokers": 3}),
        ("brokers = 3", ("--brokers", "5"), {"brokers": 5}),
        ('config = ["a=1", "b=2"]', (), {"config": ("a=1", "b=2")}),
        ("[config]\na = 1\nb = true", (), {"config": ("a=1", "b=true")}),
        ("[config]\na = 1", ("--config", "c=3"), {"config": ("c=3",)}),
        ('set = ["a=1"]', (), {"config": ("a=1",)}),
        ('from = "x.zip"', (), {"snapshot": "x.zip"}),
        ("processes = true", (), {"processes": True}),
    ],
)
def test_options_are_read_from_file_and_command_line(
    said: str, words: tuple[str, ...], expected: dict[str, object], tmp_path: Path
) -> None:
    absent = {"brokers": None, "config": (), "snapshot": None, "processes": False}
    assert ast.literal_eval(given(tmp_path / "anabranch.toml", said, *words)) == {**absent, **expected}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("broker = 3", "unknown option broker; did you mean brokers?"),
        ("x = 3", "unknown option x; there are options, brokers, config, set, from, processes"),
        ('options = "a"', "unknown option options"),
        ("brokers = [3]", "brokers is one value"),
        ("[brokers]\na = 1", "brokers is one value, not a table"),
        ('config = "a=1"', "config is a list"),
        ("processes = 1", "processes is true or false, not 1"),
        ("brokers = 12", "12 is not in the range 1<=x<=9"),
        ("brokers", "Expected '=' after a key"),
    ],
)
def test_invalid_options_files_are_refused(said: str, reason: str, tmp_path: Path) -> None:
    assert reason in given(tmp_path / "anabranch.toml", said)


def test_cluster_starts_from_options_file(tmp_path: Path, anabranch: Command) -> None:
    path = tmp_path / "anabranch.toml"
    path.write_text(SAID)
    with running("up", "--options", str(path)) as ready:
        assert ready["bootstrap"].count(":") == 2 and ready["control"].startswith("http://127.0.0.1:")
        made = anabranch("topics", "create", "orders", "--bootstrap-servers", ready["bootstrap"])
        assert made.exit_code == 0, made.output
        shown = anabranch("topics", "describe", "orders", "--json", "--bootstrap-servers", ready["bootstrap"])
        assert shown.output.count('"partition":') == 4 or shown.output.count('"index":') == 4, shown.output
    missing = anabranch("up", "--options", str(tmp_path / "none.toml"))
    assert missing.exit_code == 2 and "No such file" in missing.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_options_are_completed(shell: str) -> None:
    environment = {"PATH": "/usr/bin:/bin", "_ANABRANCH_COMPLETE": f"{shell}_source"}
    code = "from anabranch.cli.main import main; main()"
    script = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    ).stdout
    if shell == "bash" and not script:
        pytest.skip("NO BASH 4.4: its completion was NOT looked at")
    assert f"_ANABRANCH_COMPLETE={shell}_complete" in script
    asked = {
        **environment,
        "_ANABRANCH_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "anabranch top",
        "COMP_CWORD": "1",
    }
    if shell == "fish":
        asked["COMP_CWORD"] = "top"
    words = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, check=False).stdout
    assert "topics" in words
