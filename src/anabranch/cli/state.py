"""`anabranch state`: resets, saves, restores and forks the data of a cluster of `up --control`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.cli import completion
from anabranch.cli.command_group import CommandGroup
from anabranch.cli.control import with_control
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, tell_table

if TYPE_CHECKING:
    from anabranch.control.client import ControlClient


@click.group(
    cls=CommandGroup,
    name="state",
    epilog="""\b
Examples:
  anabranch up --control 127.0.0.1:9190                   in another terminal
  anabranch state reset                                   reset the cluster to its start
  anabranch state take seeded
  anabranch state restore seeded                          restore topics, records and groups
  anabranch state save seeded seeded.zip
  anabranch up --from seeded.zip                          on another machine
""",
)
def command() -> None:
    """Reset a cluster's data; take and restore snapshots."""


@command.command(epilog=examples("anabranch state reset"))
@with_control
def reset(control: ControlClient) -> None:
    """Return to the state after the start.

    Same ports; no topics, groups, rules or exchanges; real time. Client connections are closed.
    """
    control.reset()


@command.command(epilog=examples("anabranch state take seeded"))
@click.argument("name")
@with_control
def take(control: ControlClient, name: str) -> None:
    """Take a snapshot of the cluster's data."""
    control.snapshots.take(name)


@command.command(epilog=examples("anabranch state restore seeded"))
@click.argument("name", shell_complete=completion.snapshots)
@with_control
def restore(control: ControlClient, name: str) -> None:
    """Restore a snapshot; connections are closed."""
    control.snapshots.restore(name)


@command.command(
    name="list",
    epilog=examples("anabranch state list", "anabranch state list --json | jq .snapshot"),
)
@as_json
@with_control
def list_(control: ControlClient, as_json: bool) -> None:
    """List the snapshots."""
    rows = control.snapshots.rows()
    cells: list[list[str | int]] = [[row["snapshot"], row["bytes"], ",".join(map(str, row["nodes"]))] for row in rows]
    tell_table(as_json, ["snapshot", "bytes", "nodes"], zip(rows, cells, strict=True), "no snapshots")


@command.command(epilog=examples("anabranch state remove seeded"))
@click.argument("name", shell_complete=completion.snapshots)
@with_control
def remove(control: ControlClient, name: str) -> None:
    """Remove a snapshot."""
    control.snapshots.remove(name)


@command.command(epilog=examples("anabranch state save seeded seeded.zip"))
@click.argument("name", shell_complete=completion.snapshots)
@click.argument("file", type=click.Path(dir_okay=False, writable=True))
@with_control
def save(control: ControlClient, name: str, file: str) -> None:
    """Write a snapshot to a file."""
    control.snapshots.save(name, file)


@command.command(epilog=examples("anabranch state load seeded seeded.zip"))
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False))
@with_control
def load(control: ControlClient, name: str, file: str) -> None:
    """Store a snapshot from a file."""
    if not Path(file).is_file():
        raise click.UsageError(f"there is no file {file}")
    control.snapshots.load(name, file)


@command.command(epilog=examples("anabranch state fork", "anabranch state fork seeded"))
@click.argument("name", shell_complete=completion.snapshots, required=False, default="")
@with_control
def fork(control: ControlClient, name: str) -> None:
    """Start another cluster with the same data.

    It runs in the process of the first one until that ends, or until DELETE of `/v1/state/forks/NUMBER`.
    """
    number, response = control.snapshots.fork(name)
    click.echo(f"fork {number} bootstrap={response['bootstrap']} control={response['control']}")
