"""`anabranch context`: names clusters, and chooses the one that commands use by default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from anabranch.cli import completion
from anabranch.cli.command_group import CommandGroup
from anabranch.cli.context_store import (
    BOOTSTRAP_DEFAULT,
    CONTROL_DEFAULT,
    Context,
    contexts_file,
    read_contexts,
    write_contexts,
)
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, tell_table


@click.group(
    cls=CommandGroup,
    name="context",
    epilog="""\b
Examples:
  anabranch context create staging --bootstrap-server kafka.example.org:9093 --command-config alice.properties
  anabranch context use staging
  anabranch topics list                       topics of staging
  anabranch context list
  anabranch context use --none                the local cluster again
  anabranch context delete staging
""",
)
def command() -> None:
    """Name clusters, and choose the one that commands use.

    --bootstrap-server, --control and their environment variables take precedence.
    """


@command.command(
    epilog=examples("anabranch context create staging --bootstrap-server kafka.example.org:9093"),
)
@click.argument("name")
@click.option(
    "--bootstrap-server",
    "--bootstrap-servers",
    "bootstrap",
    default=BOOTSTRAP_DEFAULT,
    show_default=True,
    metavar="HOST:PORT[,...]",
    help="Bootstrap brokers of the cluster.",
)
@click.option(
    "--command-config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="A file of Kafka's client properties; its content is copied.",
)
@click.option("--control", default=CONTROL_DEFAULT, show_default=True, metavar="URL", help="Its control plane.")
@click.option("--control-token", default="", help="The token of its control plane.")
@click.option(
    "--control-ca",
    type=click.Path(dir_okay=False, exists=True, resolve_path=True),
    help="The CA file of its https URL.",
)
@click.option("--replace", "is_replaced", is_flag=True, help="Replace a context of this name, with its credentials.")
def create(
    name: str,
    bootstrap: str,
    command_config: Path | None,
    control: str,
    control_token: str,
    control_ca: str | None,
    is_replaced: bool,
) -> None:
    """Create the context NAME."""
    from anabranch.broker.config.properties_file import properties_in
    from anabranch.clients.config import parse_servers
    from anabranch.clients.security_config import security_of

    contexts = read_contexts()
    if name in contexts.by_name and not is_replaced:
        there = contexts.by_name[name].bootstrap_servers
        raise click.UsageError(f"there is a context {name}, of {there}: write --replace to replace it")
    properties: dict[str, str] = {}
    try:
        parse_servers(bootstrap)
        if command_config is not None:
            properties = dict(properties_in(command_config.read_text()))
            security_of(properties)
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from None
    made = Context(bootstrap, properties, control, control_token, control_ca or "")
    write_contexts(replace(contexts, by_name={**contexts.by_name, name: made}))
    click.echo(f"context {name} is in {contexts_file()}")


@command.command(epilog=examples("anabranch context use staging", "anabranch context use --none"))
@click.argument("name", required=False, shell_complete=completion.contexts)
@click.option("--none", "none", is_flag=True, help="None: commands use the local cluster.")
def use(name: str | None, none: bool) -> None:
    """Make NAME the context that commands use."""
    if (name is None) != none:
        raise click.UsageError("write the name of a context, or --none")
    contexts = read_contexts()
    servers = BOOTSTRAP_DEFAULT if name is None else contexts.get(name).bootstrap_servers
    write_contexts(replace(contexts, current=name))
    click.echo(f"commands use {servers}")


@command.command(name="list", epilog=examples("anabranch context list"))
@as_json
def list_contexts(as_json: bool) -> None:
    """List the contexts, without their credentials."""
    contexts = read_contexts()
    rows = [
        (
            {
                "context": name,
                "current": name == contexts.current,
                "bootstrap_servers": one.bootstrap_servers,
                "control": one.control,
            },
            [name, "current" if name == contexts.current else "", one.bootstrap_servers, one.control],
        )
        for name, one in sorted(contexts.by_name.items())
    ]
    tell_table(
        as_json,
        ["context", "", "bootstrap servers", "control"],
        rows,
        "no contexts; `anabranch context create` makes one",
    )


@command.command(epilog=examples("anabranch context delete staging"))
@click.argument("name", shell_complete=completion.contexts)
def delete(name: str) -> None:
    """Delete the context NAME. If it is the current one, commands use the local cluster."""
    contexts = read_contexts()
    contexts.get(name)
    left = {one: there for one, there in contexts.by_name.items() if one != name}
    write_contexts(replace(contexts, by_name=left, current=None if contexts.current == name else contexts.current))
    click.echo(f"deleted {name}")
