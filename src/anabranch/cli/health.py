"""`anabranch health`: checks whether a server is in service, for containers and scripts."""

from __future__ import annotations

import click

from anabranch.cli.node import address
from anabranch.runtime.interruptible import run_interruptible

TIMEOUT_MS = 3000
BROKER = 4
"""The type of a broker among the resources of DescribeConfigs."""


@click.command(
    name="health",
    epilog="""\b
Examples:
  anabranch health 127.0.0.1:9092                 a broker that serves, in a cluster with a controller
  anabranch health --role controller 127.0.0.1:9099
  anabranch health --role zookeeper 127.0.0.1:2181
""",
)
@click.argument("server", metavar="HOST:PORT")
@click.option("--role", default="broker", show_default=True, type=click.Choice(["broker", "controller", "zookeeper"]))
def command(server: str, role: str) -> None:
    """Exit with 0 if the server is in service, with 1 and the reason if it is not."""
    host, port = address(server, "the server")
    reason = run_interruptible(zookeeper_trouble(host, port) if role == "zookeeper" else node_trouble(host, port, role))
    if reason:
        raise click.ClickException(f"{server}: {reason}")
    click.echo(f"{server} is in service")


async def zookeeper_trouble(host: str, port: int) -> str:
    """Why the ZooKeeper at this address is not in service; empty if it is."""
    from anabranch.cluster.zookeeper import answers

    return "" if await answers(host, port) else "no ZooKeeper answers"


async def node_trouble(host: str, port: int, role: str) -> str:
    """Why the node at this address is not in service; empty if it is.

    A broker is in service when its own Metadata response names it. It is found there by its id, which DescribeConfigs
    confirms: the advertised port may be mapped, or all brokers may share one.
    """
    from anabranch.clients.connection import Connection
    from anabranch.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
    from anabranch.protocol.apis.metadata import MetadataRequest
    from anabranch.protocol.errors import ErrorCode

    named = False
    try:
        connection = await Connection.open(
            host, port, client_id="anabranch-health", request_timeout_ms=TIMEOUT_MS, connect_timeout_ms=TIMEOUT_MS
        )
        try:
            if role == "controller":
                return ""  # it has answered ApiVersions
            answer = await connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
            for broker in sorted(answer.brokers, key=lambda one: one.port != port):
                row = DescribeConfigsResource(
                    resource_type=BROKER, resource_name=str(broker.node_id), configuration_keys=["broker.id"]
                )
                (found,) = (await connection.call(DescribeConfigsRequest(resources=[row]))).results
                forbidden = found.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                if found.error_code == ErrorCode.NONE or (forbidden and broker.port == port):
                    named = True
                    break
        finally:
            await connection.close()
    except (ConnectionError, TimeoutError, OSError) as error:
        return f"no response ({error or 'timeout'})"
    if answer.controller_id < 0:
        return "the cluster has no active controller"
    return "" if named else "it is not registered as a broker"
