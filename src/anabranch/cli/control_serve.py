"""`anabranch control serve`: the control plane of a cluster without a launcher."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.cli.start_errors import cannot_start
from anabranch.runtime.runner import LOG_LEVELS, StopSignal, run

if TYPE_CHECKING:
    from anabranch.control.endpoint import ControlEndpoint


@click.command(
    name="serve",
    epilog="""\b
Examples:
  anabranch node --id 1 --zookeeper 127.0.0.1:2181 --data-dir 1 --control 127.0.0.1:0      in other terminals, each
  anabranch node --id 2 --zookeeper 127.0.0.1:2181 --data-dir 2 --listen 127.0.0.1:9093 --control 127.0.0.1:0
  anabranch control serve --zookeeper 127.0.0.1:2181 --control 127.0.0.1:9190
  anabranch control kill 2
  anabranch control serve --zookeeper zk:2181 --control 0.0.0.0:9190 --control-token secret --token-file agents.token
""",
)
@click.option("--zookeeper", required=True, metavar="HOST:PORT[,...][/CHROOT]", help="The ZooKeeper of the cluster.")
@click.option(
    "--control", required=True, metavar="HOST:PORT", help="Serve the control plane at this address. Port 0: a free one."
)
@click.option(
    "--control-token",
    envvar="ANABRANCH_CONTROL_TOKEN",
    show_envvar=True,
    metavar="TOKEN",
    help="The token of this control plane; required for non-loopback addresses.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False),
    help="A file with the token of the nodes' agents, which only its owner can read.",
)
@click.option(
    "--log-level", default="warning", show_default=True, type=click.Choice(LOG_LEVELS), help="The log level of stderr."
)
def command(zookeeper: str, control: str, control_token: str | None, token_file: str | None, log_level: str) -> None:
    """Control the nodes that were started with --control, as one cluster.

    The agents are found in ZooKeeper. Another front is refused while this one runs.
    """
    from anabranch.control.endpoint import make_control_endpoint
    from anabranch.control.front.discovered_front import NoFront
    from anabranch.controller.zk.session import ZkError

    token = agents_token(token_file)
    try:
        endpoint = make_control_endpoint(control, control_token)
        assert endpoint is not None, "--control is required"
        run(lambda: serve(zookeeper, token, endpoint), log_level=log_level)
    except NoFront as error:
        raise click.ClickException(str(error)) from None
    except (ZkError, OSError, TimeoutError) as error:
        raise click.ClickException(cannot_start(error)) from None


def agents_token(path: str | None) -> str:
    """The token in a file; empty without a file. Raises UsageError if others can read it."""
    if path is None:
        return ""
    try:
        if stat.S_IMODE(Path(path).stat().st_mode) & 0o077:
            raise click.UsageError(f"--token-file {path}: other users can read it; chmod 600 {path}")
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--token-file {path}: {error}") from None
    if not token:
        raise click.UsageError(f"--token-file {path} is empty")
    return token


async def serve(zookeeper: str, token: str, endpoint: ControlEndpoint) -> None:
    """Serve the control plane until a signal."""
    from anabranch.cli.process_clusters import front_routes
    from anabranch.control.front.discovered_front import discovered_front

    stop = StopSignal()
    async with discovered_front(zookeeper, token) as front, endpoint.serve(front, front_routes):
        nodes = ",".join(map(str, front.links))
        sys.stdout.write(f"ready nodes={nodes} control={endpoint.url}\n")
        sys.stdout.flush()
        click.echo(f"dashboard: {endpoint.url}/", err=True)
        await stop.wait()
