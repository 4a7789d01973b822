"""The command line `anabranch`: finds the subcommand, runs it, and reports a user's errors in one line.

Each subcommand is a module of `anabranch.cli`, imported when it is called: `anabranch up` does not import the others.
An invalid setting, address or id ends in one line on stderr that suggests a correction, and in exit code 2.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Final

import click

from anabranch.cli.command_group import CommandGroup

COMMANDS: Final = {
    "up": ("anabranch.cli.up", "Run a cluster on this machine."),
    "nodes": ("anabranch.cli.nodes", "List the nodes of `up --processes`, and restart one."),
    "control": ("anabranch.cli.control", "Kill, stop and start brokers of `up --control`; wait; follow events."),
    "faults": ("anabranch.cli.faults", "Fail, hold, delay or damage responses of `up --control` brokers."),
    "clock": ("anabranch.cli.clock", "Advance, stop or speed up the clock of `up --control`."),
    "state": ("anabranch.cli.state", "Reset a cluster of `up --control`; take and restore snapshots."),
    "journal": ("anabranch.cli.journal", "Show requests and responses recorded by `up --control-journal`."),
    "telemetry": (
        "anabranch.cli.telemetry",
        "Subscribe to client metrics (KIP-714), and show pushed ones.",
    ),
    "replay": (
        "anabranch.cli.replay",
        "Send recorded requests to another cluster, and compare responses.",
    ),
    "proxy": ("anabranch.cli.proxy", "Run a proxy with fault rules and a journal for any Kafka cluster."),
    "tour": ("anabranch.cli.tour", "Run a guided tour: six stories on a live cluster."),
    "node": ("anabranch.cli.node", "Run one node of a cluster with ZooKeeper."),
    "zookeeper": ("anabranch.cli.zookeeper", "Run a ZooKeeper server, from the jars of PySpark."),
    "context": ("anabranch.cli.context", "Manage named clusters, and select the one for commands."),
    "health": ("anabranch.cli.health", "Check whether a node or ZooKeeper is in service (exit status)."),
    "cluster": ("anabranch.cli.cluster", "Describe brokers; elect leaders; move partitions."),
    "topics": ("anabranch.cli.topics", "Create, list, describe, resize and delete topics."),
    "produce": ("anabranch.cli.produce", "Send lines of text or JSON as records."),
    "consume": ("anabranch.cli.consume", "Show the records of topics, in key order."),
    "groups": ("anabranch.cli.groups", "Show and change consumer groups: members, gates, offsets."),
    "users": ("anabranch.cli.users", "Manage SCRAM users and their passwords."),
    "acls": ("anabranch.cli.acls", "Manage ACLs of topics, groups and ids."),
    "tokens": ("anabranch.cli.tokens", "Manage delegation tokens."),
    "certs": ("anabranch.cli.certs", "Create certificates for a local cluster."),
    "features": ("anabranch.cli.features", "Show and change feature levels, such as ordered resizing."),
    "streams": ("anabranch.cli.streams", "Run an instance of a streams application."),
    "audit": ("anabranch.cli.audit", "Check with Spark that keys kept their order."),
    "demo": ("anabranch.cli.demo", "Replay a year of flights through resizes and faults, audited by Spark."),
    "dump": ("anabranch.cli.dump", "Explain the bytes of a Kafka message."),
}

COMPLETE: Final = "_ANABRANCH_COMPLETE"
"""The environment variable by which a shell asks for completions."""
INTERRUPTED: Final = 130
"""128 and the number of SIGINT: a shell's loop ends with the command."""

HELP: Final = """A Kafka-protocol cluster whose topics split and merge while every key keeps its order.

\b
  anabranch up                                     three brokers in this process, on 9092, 9093 and 9094
  anabranch topics create flights --partitions 4   a topic
  anabranch topics alter flights --partitions 8    split it; every key keeps its order
  anabranch topics alter flights --partitions 5    merge it again
"""


class LazyCommands(CommandGroup):
    """Lists subcommands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the subcommands, in the order in which newcomers need them; click calls it."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a subcommand."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; Ctrl-C ends it with the status that shells give it, and nothing on stderr."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version, and whether the hot modules are compiled (`setup.py`), in the words of mypy and Black."""
    if not wanted or context.resilient_parsing:
        return
    from importlib.metadata import version
    from importlib.util import find_spec

    hot = find_spec("anabranch.protocol.codec")
    compiled = hot is not None and not (hot.origin or "").endswith(".py")
    click.echo(f"anabranch, version {version('anabranch')} (compiled: {'yes' if compiled else 'no'})")
    context.exit()


@click.command(cls=LazyCommands, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version, and whether hot modules are compiled, and exit.",
)
def cli() -> None:
    """See HELP."""


def main(arguments: list[str] | None = None) -> Any:
    """Entry point of the `anabranch` command."""
    if COMPLETE in os.environ:
        import anabranch.cli.bash_completion  # noqa: F401  # registers itself
    return cli(args=arguments, prog_name="anabranch")


if __name__ == "__main__":
    main()
