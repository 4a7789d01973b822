"""`anabranch journal`: shows the last exchanges of a cluster of `up --control-journal`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli import completion
from anabranch.cli.control import with_control
from anabranch.cli.remote import has_headings
from anabranch.journal.exchange_line import EXCHANGE_HEADINGS, exchange_line

if TYPE_CHECKING:
    from anabranch.control.client import ControlClient


@click.command(
    name="journal",
    epilog="""\b
Examples:
  anabranch up --control 127.0.0.1:9190 --control-journal 1000      in another terminal
  anabranch journal --follow                                       one line for each exchange
  anabranch journal topic=orders error=NOT_LEADER_OR_FOLLOWER
  anabranch journal explain 41                                     why exchange 41 was refused
  anabranch journal topic=orders --capture orders.pcapng           for Wireshark; needs up --control-frames
  anabranch journal api=OffsetCommit group=billing --json | jq .request
""",
)
@click.argument("where", nargs=-1, shell_complete=completion.journal_conditions)
@click.option("--follow", is_flag=True, help="Follow new exchanges.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, with request and response.")
@click.option("--bytes", "with_bytes", is_flag=True, help="With --json: also the bytes, for `anabranch replay`.")
@click.option(
    "--capture",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write a capture for Wireshark (pcapng) instead of showing exchanges.",
)
@with_control
def command(
    control: ControlClient, where: tuple[str, ...], follow: bool, as_json: bool, with_bytes: bool, capture: str | None
) -> None:
    """Show the last exchanges, the oldest first.

    WHERE is made of NAME=VALUE, as in a rule of `anabranch faults`: api, versions, brokers, client_id, topic,
    partition, group, transactional_id, producer_id; between_brokers=true; and error, rule, outcome, after, limit.
    """
    if with_bytes and (not as_json or follow):
        raise click.UsageError("--bytes needs --json, and excludes --follow")
    if capture is not None and (as_json or follow):
        raise click.UsageError("--capture writes the kept exchanges to a file: leave out --json and --follow")
    number = _to_explain(where)
    if number is not None and (as_json or follow or capture is not None):
        raise click.UsageError("explain prints lines: leave out --json, --follow and --capture")
    words: dict[str, Any] = {}
    for one in where if number is None else ():
        name, found, value = one.partition("=")
        if not found:
            raise click.UsageError(f"a filter is NAME=VALUE, such as topic=orders, not {one!r}")
        words[name] = value
    if number is not None:
        click.echo("\n".join(control.journal.explain(number)))
        return
    if capture is not None:
        control.journal.save(capture, **words)
        return
    if with_bytes:
        words["bytes"] = "true"
    if not as_json and has_headings():
        click.echo(EXCHANGE_HEADINGS)
    for row in control.journal.follow(**words) if follow else control.journal.entries(**words):
        click.echo(json.dumps(row) if as_json else exchange_line(row))


def _to_explain(where: tuple[str, ...]) -> int | None:
    """The number behind `explain`. Raises UsageError without a number."""
    if where[:1] != ("explain",):
        return None
    if len(where) != 2 or not where[1].isdecimal():
        raise click.UsageError("explain needs the number of one exchange: anabranch journal explain 41")
    return int(where[1])
