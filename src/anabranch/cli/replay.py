"""`anabranch replay`: replays recorded requests on another cluster, and reports different responses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.cli.remote import as_json, refusals, security
from anabranch.runtime.interruptible import run_interruptible

if TYPE_CHECKING:
    from anabranch.journal.recording import RecordedExchange
    from anabranch.journal.replay import ReplayedExchange


@click.command(
    name="replay",
    epilog="""\b
Examples:
  anabranch up --control 127.0.0.1:9190 --control-journal 10000 --control-frames
  anabranch journal --capture said.pcapng          record requests of this cluster, or behind anabranch proxy
  anabranch replay said.pcapng --to kafka:9092     send them to another cluster, and compare
  anabranch replay said.pcapng --to kafka:9092 --pace 1x
  anabranch journal group=billing --json --bytes > billing.jsonl
  anabranch replay billing.jsonl --to kafka:9092 --json | jq .differences
""",
)
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--to", "servers", required=True, metavar="HOST:PORT[,...]", help="Bootstrap brokers of the target cluster."
)
@click.option("--pace", metavar="1x|10x", help="At the recorded pace, or ten times as fast. Default: at once.")
@click.option(
    "--command-config",
    type=click.Path(dir_okay=False),
    envvar="ANABRANCH_COMMAND_CONFIG",
    help="A file of Kafka client properties for authentication. Recorded logins are not repeated.",
)
@as_json
def command(file: str, servers: str, pace: str | None, command_config: str | None, as_json: bool) -> None:
    """Replay recorded requests on another cluster, in order, and report different responses.

    FILE is a capture or JSON lines of `anabranch journal`. Responses are compared field by field, except what may
    differ between clusters: addresses, times, texts; equal ids must be at equal places. Exits 1 if any response
    differs.
    """
    from anabranch.cli.remote import SECURITY
    from anabranch.clients.config import parse_servers
    from anabranch.journal.recording import InvalidRecording, read_recording

    try:
        parse_servers(servers)
    except ValueError as error:
        raise click.UsageError(f"--to: {error}") from None
    click.get_current_context().meta[SECURITY] = command_config
    try:
        recorded = read_recording(Path(file).read_bytes())
        speed = _pace(pace)
    except (InvalidRecording, OSError, ValueError) as error:
        raise click.UsageError(f"{file}: {error}" if not isinstance(error, OSError) else str(error)) from None
    with refusals(servers):
        differ = run_interruptible(_play(recorded, servers, speed, as_json))
    sys.exit(1 if differ else 0)


def _pace(text: str | None) -> float | None:
    if text is None:
        return None
    from anabranch.clock.spans import parse_pace

    found = parse_pace(text)
    if not found:
        raise ValueError(f"--pace {text}: no request would be sent; write 1x")
    return found


async def _play(recorded: list[RecordedExchange], servers: str, pace: float | None, as_json: bool) -> int:
    """Replay, and count the different responses."""
    from anabranch.journal.replay import Replay, row

    sent = differ = left_out = 0
    async for one in Replay(recorded, servers, security().get("security")).play(pace):
        if as_json:
            click.echo(json.dumps(row(one), default=str))
        elif one.left_out or one.differences:
            click.echo("\n".join(lines(one)))
        sent += not one.left_out
        left_out += bool(one.left_out)
        differ += bool(one.differences)
    if not as_json:
        left = f"; {left_out} skipped" if left_out else ""
        click.echo(f"{sent} requests sent{left}: {sent - differ} equal responses, {differ} different")
    return differ


def lines(one: ReplayedExchange) -> list[str]:
    """Format a request that was left out or has a different response."""
    head = f"{one.recorded.number:>6}  {one.api} v{one.version} of {one.client_id or '-'}"
    if one.left_out:
        return [f"{head}: not sent: {one.left_out}"]
    return [
        f"{head}: {difference.path or 'answer'} was {difference.then!r}, is {difference.now!r}"
        for difference in one.differences
    ]
