"""`anabranch zookeeper`: a real ZooKeeper server in the foreground, for clusters of `anabranch node`."""

from __future__ import annotations

import sys

import click

from anabranch.commands.node import address
from anabranch.running import StopSignal, run


@click.command(
    name="zookeeper",
    epilog="""\b
Examples:
  anabranch zookeeper --data-dir ./data/zookeeper    on 127.0.0.1:2181
  anabranch zookeeper --listen 127.0.0.1:0           on a free port, forgotten at the end
""",
)
@click.option("--listen", default="127.0.0.1:2181", show_default=True, metavar="HOST:PORT", help="Where to listen.")
@click.option(
    "--data-dir", type=click.Path(file_okay=False), help="Keep its data here; without it, they are temporary."
)
@click.option(
    "--jaas", type=click.Path(exists=True, dir_okay=False), help="A file with users, as ZooKeeper has it in Java."
)
def command(listen: str, data_dir: str | None, jaas: str | None) -> None:
    """Run one ZooKeeper server until SIGINT or SIGTERM. Needs the extra `audit`, and Java 17 or the extra `java`."""
    from anabranch.zookeeper import ZooKeeperUnavailable, runs_on

    host, port = address(listen)
    try:
        click.echo(f"on {runs_on()[0]}", err=True)
        run(lambda: serve(host, port, data_dir, jaas))
    except (ZooKeeperUnavailable, OSError) as error:
        raise click.ClickException(str(error)) from None


async def serve(host: str, port: int, data_dir: str | None, jaas: str | None = None) -> None:
    """Run the server until a signal, or until it ends."""
    from anabranch.zookeeper import LocalZooKeeper

    stop = StopSignal()
    async with LocalZooKeeper(host=host, port=port, data_dir=data_dir, jaas=jaas) as server:
        sys.stdout.write(f"ready zookeeper={server.hosts}\n")
        sys.stdout.flush()
        await stop.wait(server.ended())
