"""`anabranch state`: what a cluster of `up --control` holds: reset, kept by a name, gone back to, begun with anew."""

from __future__ import annotations

from pathlib import Path

import click

from anabranch.cli.control import connected, token, url
from anabranch.cli.remote import as_json, tell


@click.group(
    name="state",
    epilog="""\b
Examples:
  anabranch up --control 127.0.0.1:9190                   in another terminal
  anabranch state reset                                   as after the start
  anabranch state take seeded
  anabranch state restore seeded                          topics, records and groups are as they were
  anabranch state save seeded seeded.zip
  anabranch up --from seeded.zip                          on another machine
""",
)
def command() -> None:
    """Reset what a cluster holds, keep it, go back to it."""


@command.command(
    epilog="""\b
Examples:
  anabranch state reset
"""
)
@url
@token
def reset(url: str, token: str) -> None:
    """Be as after the start.

    Same ports; no topics, groups, rules or exchanges; everybody's time. Clients' connections are closed.
    """
    with connected(url, token) as control:
        control.reset()


@command.command(
    epilog="""\b
Examples:
  anabranch state take seeded
"""
)
@click.argument("name")
@url
@token
def take(name: str, url: str, token: str) -> None:
    """Keep what the cluster holds, by a name."""
    with connected(url, token) as control:
        control.snapshots.take(name)


@command.command(
    epilog="""\b
Examples:
  anabranch state restore seeded
"""
)
@click.argument("name")
@url
@token
def restore(name: str, url: str, token: str) -> None:
    """Hold what a snapshot holds; connections are closed."""
    with connected(url, token) as control:
        control.snapshots.restore(name)


@command.command(
    name="list",
    epilog="""\b
Examples:
  anabranch state list
  anabranch state list --json | jq .snapshot
""",
)
@as_json
@url
@token
def list_(as_json: bool, url: str, token: str) -> None:
    """The snapshots that are kept."""
    with connected(url, token) as control:
        for row in control.snapshots.rows():
            nodes = ", ".join(map(str, row["nodes"]))
            tell(as_json, row, [f"{row['snapshot']:<20} {row['bytes']:>12,} bytes, nodes {nodes}"])


@command.command(
    epilog="""\b
Examples:
  anabranch state remove seeded
"""
)
@click.argument("name")
@url
@token
def remove(name: str, url: str, token: str) -> None:
    """Keep a snapshot no more."""
    with connected(url, token) as control:
        control.snapshots.remove(name)


@command.command(
    epilog="""\b
Examples:
  anabranch state save seeded seeded.zip
"""
)
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, writable=True))
@url
@token
def save(name: str, file: str, url: str, token: str) -> None:
    """Write a snapshot to a file."""
    with connected(url, token) as control:
        control.snapshots.save(name, file)


@command.command(
    epilog="""\b
Examples:
  anabranch state load seeded seeded.zip
"""
)
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False))
@url
@token
def load(name: str, file: str, url: str, token: str) -> None:
    """Keep what a file holds, by a name."""
    if not Path(file).is_file():
        raise click.UsageError(f"there is no file {file}")
    with connected(url, token) as control:
        control.snapshots.load(name, file)


@command.command(
    epilog="""\b
Examples:
  anabranch state fork
  anabranch state fork seeded
"""
)
@click.argument("name", required=False, default="")
@url
@token
def fork(name: str, url: str, token: str) -> None:
    """Start another cluster that holds the same.

    It runs in the process of the first, and as long, unless it is ended by DELETE of `/v1/state/forks/NUMBER`.
    """
    with connected(url, token) as control:
        number, told = control.snapshots.fork(name)
    click.echo(f"fork {number} bootstrap={told['bootstrap']} control={told['control']}")
