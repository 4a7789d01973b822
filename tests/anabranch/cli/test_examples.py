"""Help texts keep the line breaks of examples."""

from __future__ import annotations

import click
from click.testing import CliRunner

from anabranch.cli.examples import examples


def test_each_example_is_a_line_of_help() -> None:
    command = click.Command("one", epilog=examples("anabranch one", "anabranch one --all"))
    shown = CliRunner().invoke(command, ["--help"]).output
    assert shown.endswith("Examples:\n    anabranch one\n    anabranch one --all\n"), shown
