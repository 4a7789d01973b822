"""`anabranch clock`: shows and changes the time of a cluster of `up --control`."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import click

from anabranch.cli.command_group import CommandGroup
from anabranch.cli.control import with_control
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, tell

if TYPE_CHECKING:
    from anabranch.control.client import ControlClient


@click.group(
    cls=CommandGroup,
    name="clock",
    epilog="""\b
Examples:
  anabranch up --control 127.0.0.1:9190                   in another terminal
  anabranch clock show
  anabranch clock advance 45s                             timers of the next 45 seconds fire now
  anabranch clock stop                                    stop the clock; only `advance` moves it
  anabranch clock run --pace 10
""",
)
def command() -> None:
    """Show a cluster's time, advance it, stop it."""


@command.command(epilog=examples("anabranch clock show", "anabranch clock show --json | jq .time_ms"))
@as_json
@with_control
def show(control: ControlClient, as_json: bool) -> None:
    """Show the cluster's time."""
    row = control.clock.row()
    now = datetime.datetime.fromtimestamp(row["time_ms"] / 1000, datetime.UTC)
    pace = f"{row['pace']:g}x" if row["pace"] else "stands still"
    tell(as_json, row, [f"{now.isoformat(timespec='milliseconds')}  {pace}"])


@command.command(epilog=examples("anabranch clock advance 500ms", "anabranch clock advance 7d"))
@click.argument("span")
@with_control
def advance(control: ControlClient, span: str) -> None:
    """Advance the time by 500ms, 45s, 5m, 2h or 7d.

    Everything due until then happens in order: sessions, rebalances, transaction timeouts, retention. The command
    returns when the cluster is idle.
    """
    control.clock.advance(span)


@command.command(epilog=examples("anabranch clock stop"))
@with_control
def stop(control: ControlClient) -> None:
    """Stop the clock; only advance moves it."""
    control.clock.stop()


@command.command(
    epilog=examples(
        "anabranch clock run",
        "anabranch clock run --pace 10                           ten times as fast",
    )
)
@click.option("--pace", default=1.0, show_default=True, help="Seconds of the cluster per real second.")
@with_control
def run(control: ControlClient, pace: float) -> None:
    """Run the clock, also faster or slower."""
    control.clock.run(pace)
