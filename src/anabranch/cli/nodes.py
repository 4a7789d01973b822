"""`anabranch nodes`: lists the nodes of `anabranch up --processes`, and restarts ended ones."""

from __future__ import annotations

import click

from anabranch.cli import completion
from anabranch.cli.command_group import CommandGroup
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, tell, tell_none
from anabranch.runtime.interruptible import run_interruptible

NONE = "no cluster of `anabranch up --processes` runs here; `anabranch control state` shows the nodes of the others"


@click.group(
    cls=CommandGroup,
    name="nodes",
    epilog=examples("anabranch nodes list", "anabranch nodes start 2      after a kill -9 of node 2"),
)
def command() -> None:
    """The nodes of clusters of processes on this machine."""


@command.command(
    name="list",
    epilog=examples("anabranch nodes list", "anabranch nodes list --cluster ./data"),
)
@click.option("--cluster", default="", metavar="DIR|HOST:PORT", help="Only this cluster: its directory or ZooKeeper.")
@as_json
def list_nodes(cluster: str, as_json: bool) -> None:
    """Show which nodes run and which are down."""
    from anabranch.cluster.control_socket import OrderRefused
    from anabranch.cluster.process_registry import launched_clusters

    try:
        clusters = [one for one in run_interruptible(launched_clusters()) if one.is_called(cluster)]
    except OrderRefused as error:
        raise click.ClickException(str(error)) from None
    if not clusters:
        tell_none(as_json, "no such cluster of `anabranch up --processes` runs here" if cluster else NONE)
    for one in clusters:
        lines = [f"{one.directory} (zookeeper {one.zookeeper})"]
        for row in one.nodes:
            state = f"running, pid {row['pid']}" if row["pid"] > 0 else "down"
            lines.append(f"  node {row['id']} at {row['address']}: {state}")
        tell(as_json, {"directory": str(one.directory), "zookeeper": one.zookeeper, "nodes": one.nodes}, lines)


@command.command(
    name="start",
    epilog=examples(
        "anabranch nodes start 2",
        "anabranch nodes start 2 --cluster ./data      if several clusters run here",
    ),
)
@click.argument("node", type=click.IntRange(0), shell_complete=completion.launched_nodes)
@click.option("--cluster", default="", metavar="DIR|HOST:PORT", help="The node's cluster: its directory or ZooKeeper.")
def start(node: int, cluster: str) -> None:
    """Start a node that has ended.

    It keeps its port and its data; the command returns when it serves.
    """
    from anabranch.cluster.control_socket import OrderRefused
    from anabranch.cluster.process_registry import start_node

    try:
        click.echo(run_interruptible(start_node(node, cluster)))
    except OrderRefused as error:
        raise click.ClickException(str(error)) from None
