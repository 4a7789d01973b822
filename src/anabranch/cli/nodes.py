"""`anabranch nodes`: lists the nodes of `anabranch up --processes`, and restarts ended ones."""

from __future__ import annotations

import asyncio

import click

from anabranch.cli import completion
from anabranch.cli.command_group import CommandGroup
from anabranch.cli.examples import examples
from anabranch.cli.remote import as_json, tell


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
    from anabranch.cluster.process_registry import launched_clusters

    for one in asyncio.run(launched_clusters()):
        if not one.is_called(cluster):
            continue
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
        click.echo(asyncio.run(start_node(node, cluster)))
    except OrderRefused as error:
        raise click.ClickException(str(error)) from None
