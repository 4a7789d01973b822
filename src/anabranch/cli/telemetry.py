"""`anabranch telemetry`: shows the metrics that clients push (KIP-714), and manages their subscriptions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from anabranch.cli.command_group import CommandGroup
from anabranch.cli.control import with_control
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, bootstrap, run, tell, with_admin
from anabranch.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from anabranch.clients.admin import Admin
    from anabranch.control.client import ControlClient
    from anabranch.control.otlp import PointRow
    from anabranch.control.telemetry import TelemetryRow
    from anabranch.control.telemetry_routes import MetricsRow

SETTINGS: Final[tuple[str, ...]] = ("interval.ms", "match", "metrics")
OTHER_KAFKA: Final = "client metrics subscriptions need a KRaft profile: anabranch up --kafka 4.1"
HINTS: Final = {ErrorCode.INVALID_REQUEST: OTHER_KAFKA, ErrorCode.UNSUPPORTED_VERSION: OTHER_KAFKA}


@click.group(
    cls=CommandGroup,
    name="telemetry",
    epilog="""\b
Examples:
  anabranch up --kafka 4.1 --config client.telemetry.enable=true --control 127.0.0.1:9190      in another terminal
  anabranch telemetry subscribe all --interval-ms 1000      every metric of every client, each second
  anabranch telemetry clients                               clients with their pushes and errors
  anabranch telemetry show shop                             the last metrics of client shop
  anabranch telemetry wait shop --pushes 2                  wait for two pushes
  anabranch telemetry unsubscribe all
""",
)
def command() -> None:
    """Client metrics: clients, pushes, subscriptions."""


@command.command(
    epilog=examples(
        "anabranch telemetry clients",
        "anabranch telemetry clients --json | jq 'select(.pushes == 0)'",
    )
)
@as_json
@with_control
def clients(control: ControlClient, as_json: bool) -> None:
    """Show clients with subscriptions and pushes."""
    rows = control.telemetry.clients()
    for row in rows:
        tell(as_json, row, [client_line(row)])
    if not rows:
        click.echo(
            "no client has requested a subscription: this needs KIP-714 and enable.metrics.push=true",
            err=True,
        )


@command.command(
    epilog="""\b
Examples:
  anabranch telemetry show shop
  anabranch telemetry show shop --json | jq .name
  anabranch telemetry show shop --save shop.otlp       for OpenTelemetry collectors
"""
)
@click.argument("client")
@click.option(
    "--save", type=click.Path(dir_okay=False, writable=True), metavar="FILE", help="Write the metrics to a file (OTLP)."
)
@as_json
@with_control
def show(control: ControlClient, client: str, save: str | None, as_json: bool) -> None:
    """Show the last push of a CLIENT.

    CLIENT is a client id, or a client instance id.
    """
    if save is not None:
        control.telemetry.save(client, save)
        return
    for row in control.telemetry.read(client):
        if as_json:
            for point in row["metrics"] or ():
                click.echo(json.dumps(point))
        else:
            click.echo(client_line(row))
            for point in row["metrics"] or ():
                click.echo(point_line(point))
        if row["last"] is not None and row["metrics"] == []:
            click.echo("its last push has no metrics", err=True)
        if row["unread"]:
            click.echo(f"its metrics are not shown: {row['unread']}", err=True)


@command.command(
    epilog=examples(
        "anabranch telemetry wait shop",
        "anabranch telemetry wait shop --terminated        wait for the last push, at its close",
    )
)
@click.argument("client")
@click.option(
    "--pushes", default=1, show_default=True, type=click.IntRange(1), help="The number of pushes to wait for."
)
@click.option("--terminated", is_flag=True, help="Wait for the terminating push.")
@click.option("--timeout", "timeout_s", default=30.0, show_default=True, help="Seconds; then the exit code is 1.")
@with_control
def wait(control: ControlClient, client: str, pushes: int, terminated: bool, timeout_s: float) -> None:
    """Wait until a CLIENT has pushed.

    A timeout names the unmet condition.
    """
    for row in control.telemetry.wait_for(client, pushes, terminated=terminated, timeout_s=timeout_s):
        click.echo(client_line(row))


@command.command(
    epilog="""\b
Examples:
  anabranch telemetry subscribe all --interval-ms 1000
  anabranch telemetry subscribe producers --metrics org.apache.kafka.producer. --match client_software_name=rdkafka
"""
)
@click.argument("name")
@click.option(
    "--metrics",
    default="*",
    show_default=True,
    metavar="PREFIX,...",
    help="Prefixes of metric names; *: every metric.",
)
@click.option(
    "--interval-ms",
    default=1000,
    show_default=True,
    type=click.IntRange(100, 3_600_000),
    help="The push interval.",
)
@click.option(
    "--match",
    multiple=True,
    metavar="NAME=EXPRESSION",
    help="Only matching clients: client_id, client_instance_id, client_software_name, "
    "client_software_version, client_source_address, client_source_port. May be repeated.",
)
@bootstrap
def subscribe(name: str, metrics: str, interval_ms: int, match: tuple[str, ...], bootstrap: str) -> None:
    """Subscribe to client metrics.

    NAME is the name of a subscription; an older one of this name is replaced. Any Kafka without ZooKeeper accepts it. A
    connected client adopts it at its next request: after its current interval, or after five minutes without a
    subscription.
    """
    settings = {"metrics": metrics, "interval.ms": str(interval_ms)} | ({"match": ",".join(match)} if match else {})

    async def act(admin: Admin) -> None:
        unset = [one for one in SETTINGS if one not in settings]
        await admin.alter_configs(client_metrics=name, changes=settings, unset=unset)
        click.echo(f"subscription {name}: clients push {metrics} every {interval_ms} ms")

    run(bootstrap, act, hints=HINTS)


@command.command(epilog=examples("anabranch telemetry unsubscribe all"))
@click.argument("name")
@with_admin(hints=HINTS)
async def unsubscribe(admin: Admin, name: str) -> None:
    """Delete a subscription."""
    await admin.alter_configs(client_metrics=name, unset=SETTINGS)
    click.echo(f"{name} is removed")


@command.command(epilog=examples("anabranch telemetry subscriptions"))
@as_json
@with_admin(hints=HINTS)
async def subscriptions(admin: Admin, as_json: bool) -> None:
    """List the subscriptions: metrics, clients, intervals."""
    for name in await admin.list_client_metrics():
        entries = await admin.describe_configs(client_metrics=name)
        settings = {one: entries[one].value or "" for one in SETTINGS if one in entries}
        tell(as_json, {"name": name, **settings}, [subscription_line(name, settings)])


def subscription_line(name: str, settings: dict[str, str]) -> str:
    """Format a subscription."""
    match = settings["match"]
    return (
        f"{name:<20} {settings['metrics'] or 'nothing'} every {settings['interval.ms']} ms"
        f" of {f'clients with {match}' if match else 'all clients'}"
    )


def client_line(row: TelemetryRow | MetricsRow) -> str:
    """Format a client."""
    last = row["last"]
    who = f"node {row['node']}  {row['client'] or '-':<20} {row['software']} {row['software_version']:<10}"
    if last is not None:
        times = f"{row['pushes']} push{'' if row['pushes'] == 1 else 'es'}"
        ended = ", terminated" if row["terminated"] else ""
        done = f"{times}, the last at {last['at']:.3f} of {last['bytes']} bytes ({last['compression']}){ended}"
    elif row["wanted"]:
        done = f"has not pushed yet; subscription: {','.join(row['wanted'])} every {row['interval_ms']} ms"
    else:
        done = "no subscription matches it: anabranch telemetry subscribe NAME"
    refused = f"; refused with {row['refused']}" if row["refused"] else ""
    return f"{who}  {done}{refused}"


def point_line(point: PointRow) -> str:
    """Format a data point."""
    value = point["value"] if "count" not in point else f"{point['sum']:g} in {point['count']}"
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    kind = ", ".join(filter(None, (point["kind"], point["temporality"])))
    attributes = "  ".join(f"{name}={value}" for name, value in point["attributes"].items())
    return f"  {point['name']:<60} {shown:>14} {point['unit']:<3} {kind:<16} {attributes}".rstrip()
