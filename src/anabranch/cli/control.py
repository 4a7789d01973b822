"""`anabranch control`: acts on a cluster of `up --control`, and queries it."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import click

from anabranch.cli import completion, control_serve, shared_options
from anabranch.cli.command_group import CommandGroup
from anabranch.cli.context_store import CONTROL_DEFAULT, chosen_ca, chosen_token, current_context
from anabranch.cli.examples import examples
from anabranch.cli.remote import has_headings

if TYPE_CHECKING:
    from anabranch.control.client import ControlClient
    from anabranch.control.wait_conditions import WaitCondition

url = click.option(
    "--control",
    "url",
    default=lambda: current_context().control,
    show_default=f"that of `anabranch context`, else {CONTROL_DEFAULT}",
    envvar="ANABRANCH_CONTROL",
    show_envvar=True,
    metavar="URL",
    help="The address of the control plane, from the ready line.",
)
token = click.option(
    "--control-token",
    "token",
    default="",
    envvar="ANABRANCH_CONTROL_TOKEN",
    show_envvar=True,
    help="The token of the control plane.",
)


@contextlib.contextmanager
def open_client(url: str, token: str, ca_file: str = "") -> Iterator[ControlClient]:
    """Connect to the control plane; a refusal, failed connection or file becomes one line and exit code 1."""
    from anabranch.control.client import ControlClient, ControlError, NotTrusted

    try:
        yield ControlClient(url, token, ca_file)
    except NotTrusted as error:
        raise click.ClickException(f"{error}; see --control-ca") from None
    except ControlError as error:
        raise click.ClickException(str(error)) from None
    except BrokenPipeError:
        raise  # the reader of the output has exited
    except ConnectionError as error:
        raise click.ClickException(f"{error}; start the cluster with `anabranch up --control HOST:PORT`") from None
    except OSError as error:  # a file to read or write
        raise click.ClickException(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None


def with_control(function: Callable[..., None]) -> Callable[..., None]:
    """Pass a command a `ControlClient`, made from the options --control, --control-token and --control-ca."""

    @url
    @token
    @shared_options.CONTROL_CA
    @functools.wraps(function)
    def connect(*, url: str, token: str, ca_file: str, **options: Any) -> None:
        with open_client(url, chosen_token(token), chosen_ca(ca_file)) as control:
            function(control, **options)

    return connect


@click.group(
    cls=CommandGroup,
    name="control",
    epilog="""\b
Examples:
  anabranch up --control 127.0.0.1:9190                   in another terminal
  anabranch control kill 2
  anabranch control wait topic=orders isr=1,3             until the ISR is 1,3
  anabranch control start 2
  anabranch control session expire 1                      a deposed leader that has not learned it yet
  anabranch control events --follow
  anabranch control state | jq .topics
  anabranch control serve --zookeeper 127.0.0.1:2181 --control 127.0.0.1:9190
                                                          in front of nodes started with `anabranch node --control`
""",
)
def command() -> None:
    """Kill, stop and start brokers; wait; follow events."""


command.add_command(control_serve.command)


def _node_action(name: str, help: str, done: str, example: str = "") -> None:
    @command.command(name, help=help, epilog=examples(f"anabranch control {name} 2{example}"))
    @click.argument("node", type=int, shell_complete=completion.nodes)
    @with_control
    def act(control: ControlClient, node: int) -> None:
        control.ask("POST", f"/v1/nodes/{node}/{name}")
        click.echo(f"node {node} {done}")


_node_action("kill", "Kill a node abruptly.", "is dead")
_node_action("stop", "Stop a node; its leaderships move first.", "has stopped")
_node_action("start", "Start a stopped node.", "runs")
_node_action(
    "freeze",
    "Freeze a node.",
    "is frozen",
    "         like SIGSTOP: it keeps its connections, and does not respond",
)
_node_action("thaw", "Resume a frozen node.", "goes on")


@command.command(
    epilog=examples(
        "anabranch control elect orders 0",
        "anabranch control elect orders 0 --unclean     a replica that is not in sync, if no other is alive",
    )
)
@click.argument("topic", shell_complete=completion.topics)
@click.argument("partition", type=int)
@click.option(
    "--unclean", is_flag=True, help="Elect a replica that is not in sync, if no other is alive: records may be lost."
)
@with_control
def elect(control: ControlClient, topic: str, partition: int, unclean: bool) -> None:
    """Elect a leader for a partition."""
    control.elect(topic, partition, unclean=unclean)
    click.echo(f"{topic}-{partition} has another leader")


@command.command(
    context_settings={"ignore_unknown_options": True},  # -30s
    epilog=examples(
        "anabranch control clock 2 5m        five minutes ahead: timestamps, retention and tokens of node 2 are early",
        "anabranch control clock 2 -30s      behind",
        "anabranch control clock 2 0         right again",
    ),
)
@click.argument("node", type=int, shell_complete=completion.nodes)
@click.argument("offset")
@with_control
def clock(control: ControlClient, node: int, offset: str) -> None:
    """Set a node's time of day ahead or behind.

    It stays so when the node is restarted. Timers are not affected.
    """
    row = control.ask("POST", f"/v1/nodes/{node}/clock", {"offset": "0s" if offset == "0" else offset})
    click.echo(f"the clock of node {node} is off by {row.get('clock_offset_ms', 0):,} ms")


@command.command(
    epilog="""\b
Examples:
  anabranch control session expire 1
  anabranch control session suspend 1       cut it off from ZooKeeper
  anabranch control session delay 1 200ms   what it sends to ZooKeeper and gets from it is late
  anabranch control session resume 1        end both
"""
)
@click.argument("what", type=click.Choice(["expire", "suspend", "delay", "resume"]))
@click.argument("node", type=int, shell_complete=completion.nodes)
@click.argument("delay", required=False)
@with_control
def session(control: ControlClient, what: str, node: int, delay: str | None) -> None:
    """Expire, suspend or delay a node's ZooKeeper session.

    A node whose session has expired runs on and believes that it is still leader, although other nodes have elected a
    new one.
    """
    if (what == "delay") != (delay is not None):
        raise click.UsageError(
            "`delay` needs a duration, such as 200ms" if delay is None else f"{what} takes no duration"
        )
    control.ask("POST", f"/v1/nodes/{node}/session/{what}", None if delay is None else {"delay": delay})
    click.echo(f"{what}: done for node {node}")


@command.command(epilog=examples("anabranch control state | jq '.nodes[] | select(.controller)'"))
@with_control
def state(control: ControlClient) -> None:
    """Print the whole state as one JSON object."""
    click.echo(json.dumps(control.state(), indent=2))


@command.command(
    epilog="""\b
Examples:
  anabranch control wait topic=orders partition=0 leader=2
  anabranch control wait topic=orders isr=3+ node=2 --timeout 60
  anabranch control wait group=billing state=Stable members=2 lag=0
"""
)
@click.argument("condition", nargs=-1, required=True, shell_complete=completion.wait_conditions)
@click.option("--timeout", "timeout_s", default=30.0, show_default=True, help="Seconds; then the exit code is 1.")
@with_control
def wait(control: ControlClient, condition: tuple[str, ...], timeout_s: float) -> None:
    """Wait until all of a CONDITION holds.

    It consists of NAME=VALUE: topic, partitions, partition, leader, isr (1,2,3 or 2+), high_watermark; group, state,
    members, lag; node; controller. A timeout names the unmet part.
    """
    words: dict[str, object] = {}
    for one in condition:
        name, found, value = one.partition("=")
        if not found:
            raise click.UsageError(f"a condition is NAME=VALUE, such as topic=orders, not {one!r}")
        words[name] = value
    control.wait_for(timeout_s=timeout_s, **cast("WaitCondition", words))  # as text, which the cluster parses


@command.command(
    epilog="""\b
Examples:
  anabranch control events
  anabranch control events --follow        until Ctrl-C
  anabranch control events --json --after 120
"""
)
@click.option("--after", default=0, show_default=True, help="Only events after this number.")
@click.option("--follow", is_flag=True, help="Follow new events.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@with_control
def events(control: ControlClient, after: int, follow: bool, as_json: bool) -> None:
    """Show the events."""
    if not as_json and has_headings():
        click.echo(EVENT_HEADINGS)
    for one in control.follow(after) if follow else control.events(after):
        click.echo(json.dumps(one) if as_json else event_line(one))


EVENT_HEADINGS: Final = f"{'number':>6}  {'seconds':>12}  {'event':<18} details"


def event_line(event: Mapping[str, Any]) -> str:
    """Format an event: its number, the loop's seconds, its kind and details."""
    detail = {name: value for name, value in event.items() if name not in ("number", "at", "kind")}
    details = "  ".join(f"{name}={value}" for name, value in detail.items())
    return f"{event['number']:>6}  {event['at']:12.3f}  {event['kind']:<18} {details}".rstrip()
