"""`anabranch faults`: rules that fail, hold, delay or damage responses of a cluster of `up --control`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args, get_origin

import click

from anabranch.cli import completion
from anabranch.cli.command_group import CommandGroup
from anabranch.cli.control import with_control
from anabranch.cli.examples import examples
from anabranch.cli.remote import tell_none
from anabranch.faults.rule import FIELDS, HINTS, rule_text

if TYPE_CHECKING:
    from anabranch.control.client import ControlClient
    from anabranch.faults.faults import Faults

EDIT = "edit"


@click.group(
    cls=CommandGroup,
    name="faults",
    epilog="""\b
Examples:
  anabranch up --control 127.0.0.1:9190                   in another terminal
  anabranch faults add --api Produce --topic orders --error NOT_LEADER_OR_FOLLOWER --times 2
  anabranch faults add --name slow --api Fetch --delay-ms 200 --delay-ms 500
  anabranch faults list                                   each rule with its hits
  anabranch faults wait slow --hits 3
  anabranch faults remove slow
""",
)
def command() -> None:
    """Fail, hold, delay or damage brokers' responses."""


def rule_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each field of a rule."""
    for field in reversed(FIELDS):
        hint, help = HINTS[field.name], field.metadata["help"]
        kind = get_args(hint)[0] if get_origin(hint) is tuple else str if field.name == EDIT else hint
        words: dict[str, Any] = {"is_flag": True} if kind is bool else {"type": kind}
        if field.metadata["one_of"]:
            words["type"] = click.Choice(field.metadata["one_of"])
        if get_origin(hint) is tuple:
            words["multiple"], help = True, f"{help}; may be repeated"
        if field.name in completion.CONDITION_VALUES:
            words["shell_complete"] = completion.CONDITION_VALUES[field.name]
        if field.name == EDIT:
            words |= {"multiple": True, "metavar": "PATH=VALUE"}
        name = "--" + field.name.replace("_", "-")
        function = click.option(name, field.name, default=None, help=help[:1].upper() + help[1:] + ".", **words)(
            function
        )
    return function


@command.command(
    epilog="""\b
Examples:
  anabranch faults add --api Produce --topic orders --partition 1 --error NOT_LEADER_OR_FOLLOWER --times 2
  anabranch faults add --api OffsetCommit --error REQUEST_TIMED_OUT --after-work
  anabranch faults add --api Metadata --edit 'topics[*].partitions[*].leader_id=7'
  anabranch faults add --name gate --api EndTxn --hold
"""
)
@rule_options
@with_control
def add(control: ControlClient, **typed: Any) -> None:
    """Add a rule, and print its name."""
    rule = {name: one for name, one in typed.items() if one is not None and one is not False and one != ()}
    if EDIT in rule:
        rule[EDIT] = dict(_edit(one) for one in rule[EDIT])
    click.echo(control.ask("POST", "/v1/faults", rule)["name"])


def _edit(typed: str) -> tuple[str, Any]:
    path, found, content = typed.partition("=")
    if not found:
        raise click.UsageError(f"--edit takes PATH=VALUE, such as controller_id=7, not {typed!r}")
    try:
        return path, json.loads(content)
    except ValueError:
        return path, content


@command.command(
    name="list",
    epilog=examples("anabranch faults list", "anabranch faults list --json | jq '.[] | select(.hits == 0)'"),
)
@click.option("--json", "as_json", is_flag=True, help="All details, as one JSON list.")
@with_control
def list_(control: ControlClient, as_json: bool) -> None:
    """List rules and their hits."""
    from anabranch.faults.rule_json import from_json

    rows = control.faults.rows()
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        tell_none(as_json, "no rules; `anabranch faults add` makes one")
    for row in rows:
        held = f", holds {row['held']}" if row["held"] else ""
        click.echo(f"{row['name']:<16} {row['hits']} of {row['met']} hit{held}: {rule_text(from_json(row['rule']))}")


@command.command(epilog=examples("anabranch faults wait rule-1 --hits 2 --timeout 60"))
@click.argument("name", shell_complete=completion.rules)
@click.option("--hits", default=1, show_default=True, type=click.IntRange(1), help="The number of hits to wait for.")
@click.option("--timeout", "timeout_s", default=30.0, show_default=True, help="Seconds; then the exit code is 1.")
@with_control
def wait(control: ControlClient, name: str, hits: int, timeout_s: float) -> None:
    """Wait until a rule has hit."""
    from anabranch.control.fault_client import RuleClient

    RuleClient(control.ask, name).wait_hit(hits, timeout_s)


@command.command(epilog=examples("anabranch faults release gate"))
@click.argument("name", shell_complete=completion.rules)
@with_control
def release(control: ControlClient, name: str) -> None:
    """Release what a rule holds."""
    from anabranch.control.fault_client import RuleClient

    RuleClient(control.ask, name).release()


@command.command(epilog=examples("anabranch faults remove rule-1", "anabranch faults remove --all"))
@click.argument("name", required=False, shell_complete=completion.rules)
@click.option("--all", "everything", is_flag=True, help="Remove every rule.")
@with_control
def remove(control: ControlClient, name: str | None, everything: bool) -> None:
    """Remove a rule."""
    from anabranch.control.fault_client import RuleClient

    if (name is None) is not everything:
        raise click.UsageError("name one rule, or write --all")
    if name is None:
        control.faults.clear()
    else:
        row = RuleClient(control.ask, name).remove()
        click.echo(f"{name} has hit {row['hits']} of {row['met']} requests")


def follow_rules(faults: Faults, path: str) -> None:
    """Add the rules of a file. UsageError if one of them can never hit."""
    from anabranch.faults.rule_file import read_rules
    from anabranch.faults.rule_json import InvalidRule

    try:
        for rule in read_rules(path):
            faults.add(rule)
    except (InvalidRule, OSError) as error:
        raise click.UsageError(f"--rules {path}: {error}") from None
