"""`anabranch control serve`: the control plane of a cluster without a launcher."""

from __future__ import annotations

import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.cli import shared_options
from anabranch.cli.start_errors import cannot_start
from anabranch.runtime.runner import StopSignal, run

if TYPE_CHECKING:
    import ssl

    from anabranch.clients.security import Security
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
  anabranch control serve --zookeeper zk:2181 --control 127.0.0.1:9190 --control-certificate front.pem
      --token-file agents.token --ca-file ca.pem --command-config client.properties        with TLS everywhere
""",
)
@click.option(
    "--zookeeper",
    required=True,
    metavar="HOST:PORT[,...][/CHROOT]",
    callback=shared_options.check_zookeeper,
    help="The ZooKeeper of the cluster.",
)
@click.option(
    "--control", required=True, metavar="HOST:PORT", help="Serve the control plane at this address. Port 0: a free one."
)
@shared_options.CONTROL_TOKEN
@shared_options.CONTROL_CERTIFICATE
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False),
    help="A file with the token of the nodes' agents, which only its owner can read.",
)
@click.option(
    "--ca-file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The PEM file of the CA that the agents are verified by. With it, agents without TLS are refused.",
)
@click.option(
    "--command-config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="A file of Kafka's client properties, for the first listeners of the nodes.",
)
@shared_options.log_level("warning")
def command(
    zookeeper: str,
    control: str,
    control_token: str | None,
    control_certificate: str | None,
    token_file: str | None,
    ca_file: str | None,
    command_config: Path | None,
    log_level: str,
) -> None:
    """Control the nodes that were started with --control, as one cluster.

    The agents are found in ZooKeeper. Another front is refused while this one runs.
    """
    from anabranch.control.endpoint import make_control_endpoint
    from anabranch.control.front.discovered_front import NoFront
    from anabranch.controller.zk.session import ZkError

    token, tls, security = agents_token(token_file), agents_tls(ca_file), cluster_security(command_config)
    try:
        endpoint = make_control_endpoint(control, control_token, certificate=control_certificate)
        assert endpoint is not None, "--control is required"
        run(lambda: serve(zookeeper, token, endpoint, tls, security), log_level=log_level)
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


def agents_tls(ca_file: str | None) -> ssl.SSLContext | None:
    """The TLS context for agents; None without a file. Raises UsageError."""
    if ca_file is None:
        return None
    from anabranch.control.tls import trusting_context

    try:
        return trusting_context(ca_file)
    except (ValueError, OSError) as error:
        raise click.UsageError(f"--ca-file {ca_file}: {error}") from None


def cluster_security(command_config: Path | None) -> Security | None:
    """The credentials for the nodes' listeners; None without a file. Raises UsageError."""
    if command_config is None:
        return None
    from anabranch.broker.config.properties_file import properties_in
    from anabranch.clients.security_config import security_of

    try:
        return security_of(properties_in(command_config.read_text()))
    except (ValueError, OSError) as error:
        raise click.UsageError(f"--command-config {command_config}: {error}") from None


async def serve(
    zookeeper: str, token: str, endpoint: ControlEndpoint, tls: ssl.SSLContext | None, security: Security | None
) -> None:
    """Serve the control plane until a signal."""
    from anabranch.cli.process_clusters import front_routes
    from anabranch.control.front.discovered_front import discovered_front

    stop = StopSignal()
    async with discovered_front(zookeeper, token, tls, security) as front, endpoint.serve(front, front_routes):
        nodes = ",".join(map(str, front.links))
        sys.stdout.write(f"ready nodes={nodes} control={endpoint.url}\n")
        sys.stdout.flush()
        click.echo(f"dashboard: {endpoint.url}/", err=True)
        await stop.wait()
