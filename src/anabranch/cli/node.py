"""`anabranch node`: runs one node of a cluster that has a ZooKeeper, built in or real."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import sys
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import click

from anabranch.broker.config.broker_settings import BrokerSettings, ConfigError
from anabranch.broker.config.properties_file import properties_of
from anabranch.broker.node.start_settings import (
    IDS,
    check_reachable,
    refuse_twice,
    start_settings,
    warn_of_open_doors,
    warn_while_unreachable,
    zookeeper_login,
)
from anabranch.broker.profiles.profile_choice import versions_of
from anabranch.cli import shared_options
from anabranch.cli.metrics import metrics_endpoint
from anabranch.cli.start_errors import cannot_start
from anabranch.protocol.host_port import ADVICE, bracket, format_host_port, parse_host, parse_host_port
from anabranch.runtime.runner import StopSignal, freeze_memory, run

if TYPE_CHECKING:
    from anabranch.broker.node.app import Node
    from anabranch.control.agent import ControlledNode
    from anabranch.control.endpoint import ControlEndpoint
    from anabranch.control.route import Route

READY_TIMEOUT_MS = 60000
OPTIONS = {
    **dict.fromkeys(IDS, "--id"),
    "listeners": "--listener",
    "advertised.listeners": "--advertised-listener",
    "broker.rack": "--rack",
}
"""Properties that options of this command set."""


@click.command(
    name="node",
    epilog="""\b
Examples:
  anabranch node --id 1 --zookeeper 127.0.0.1:2181 --listen 127.0.0.1:9092 --data-dir ./data/1
  anabranch node --id 9 --roles controller --zookeeper 127.0.0.1:2181 --listen 127.0.0.1:9099
      a spare controller without data
  anabranch node --id 1 --zookeeper 127.0.0.1:2181 --kafka 4.1
      a node that looks like Kafka 4.1
  anabranch node --id 1 --zookeeper 127.0.0.1:2181 --metrics-port 9464
      metrics at http://127.0.0.1:9464/metrics
  anabranch node --id 1 --zookeeper 127.0.0.1:2181 --control 127.0.0.1:9190
      an HTTP API for fault rules, journal, events and state of this node
""",
)
@click.option("--id", "node_id", required=True, type=click.IntRange(0), help="Unique in the cluster.")
@click.option("--roles", default="broker,controller", show_default=True, help="broker, controller, or both.")
@click.option(
    "--zookeeper",
    required=True,
    metavar="HOST:PORT[,...][/CHROOT]",
    callback=shared_options.check_zookeeper,
    help="The ZooKeeper ensemble to join.",
)
@click.option("--listen", default="127.0.0.1:9092", show_default=True, metavar="HOST:PORT", help="Where to listen.")
@click.option("--advertise", metavar="HOST[:PORT]", help="The advertised address, if it differs.")
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="NAME://HOST:PORT",
    help="A listener, instead of --listen; may be repeated: SSL://0.0.0.0:9093.",
)
@click.option(
    "--advertised-listener",
    "advertised",
    multiple=True,
    metavar="NAME://HOST:PORT",
    help="The advertised address of a listener; may be repeated.",
)
@click.option("--data-dir", type=click.Path(file_okay=False), help="The directory of the logs. Default: in memory.")
@click.option(
    "--kafka", metavar="VERSION", default="", help="The version of Kafka that clients see: 2.8 to 4.2. Default: 3.9."
)
@click.option("--rack", default="", help="The rack of the node; replicas are spread over racks.")
@shared_options.BROKER_PROPERTIES
@shared_options.BROKER_PROPERTIES_FILE
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve Prometheus metrics at http://HOST:PORT/metrics, on the host of --listen. 0: a free port.",
)
@click.option(
    "--control",
    metavar="HOST:PORT",
    help="Serve the control agent of this node (rules, journal, events, state) at this address. Port 0: a free one.",
)
@shared_options.CONTROL_TOKEN
@shared_options.CONTROL_CERTIFICATE
@click.option(
    "--control-journal",
    default=0,
    type=click.IntRange(0),
    metavar="N",
    help="Keep the last N exchanges of clients, and as many of brokers, for the control agent.",
)
@shared_options.CONTROL_FRAMES
@shared_options.log_level("info")
def command(
    node_id: int,
    roles: str,
    zookeeper: str,
    listen: str,
    advertise: str | None,
    listeners: tuple[str, ...],
    advertised: tuple[str, ...],
    data_dir: str | None,
    kafka: str,
    rack: str,
    config: tuple[str, ...],
    config_file: str | None,
    metrics_port: int | None,
    control: str | None,
    control_token: str | None,
    control_certificate: str | None,
    control_journal: int,
    control_frames: bool,
    log_level: str,
) -> None:
    """Run one node until SIGINT or SIGTERM; leaderships move away before it stops."""
    from anabranch.controller.zk.session import ZkError

    host, port = address(listen)
    advertised_host, advertised_port = place(advertise or "")
    named = tuple(part.strip() for part in roles.split(",") if part.strip())
    if not named or set(named) - {"broker", "controller"}:
        raise click.UsageError(f"--roles {roles!r}: write broker, controller, or broker,controller")
    try:
        properties = properties_of(config_file, config)
        refuse_twice(
            properties, {**OPTIONS, **dict.fromkeys(("log.dir", "log.dirs") if data_dir else (), "--data-dir")}
        )
        several = {"listeners": listeners, "advertised.listeners": advertised}
        settings = dataclasses.replace(
            start_settings(
                BrokerSettings(host=host, port=port, advertised_host=advertised_host, advertised_port=advertised_port),
                {**properties, **{name: ",".join(urls) for name, urls in several.items() if urls}},
            ),
            node_id=node_id,
            roles=named,
            rack=rack,
            data_dir=data_dir or "",
        )
        settings = dataclasses.replace(
            settings, kafka_version=versions_of(kafka, [node_id], settings.kafka_version)[node_id]
        )
        check_reachable(settings)
        warn_of_open_doors(settings)
        endpoint = control_endpoint(
            control, control_token, control_journal, frames=control_frames, certificate=control_certificate
        )
        run(lambda: serve(settings, zookeeper, metrics_port, endpoint), log_level=log_level)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except (ZkError, OSError, TimeoutError) as error:
        raise click.ClickException(cannot_start(error)) from None


def address(text: str, option: str = "--listen") -> tuple[str, int]:
    """Split HOST:PORT. Raises UsageError, whose message names `option`."""
    try:
        host, port = parse_host_port(text)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}") from None
    if not host:
        raise click.UsageError(f"{option} {text!r} has no host: {ADVICE}")
    return host, port


def place(text: str) -> tuple[str, int]:
    """Split HOST or HOST:PORT; 0 for no port. A bare IPv6 address is a host."""
    if text.count(":") == 1 or text.rpartition(":")[0].endswith("]"):
        return address(text, "--advertise")
    try:
        return parse_host(bracket(text)), 0
    except ValueError as error:
        raise click.UsageError(f"--advertise: {error}") from None


def control_endpoint(
    control: str | None, token: str | None, journal_size: int, *, frames: bool, certificate: str | None
) -> ControlEndpoint | None:
    """Create the endpoint of the control agent, if an option asks for it. Raises UsageError for conflicting options."""
    if not (control or token or journal_size or frames or certificate):
        return None
    from anabranch.control.endpoint import make_control_endpoint

    return make_control_endpoint(control, token, journal_size, frames=frames, certificate=certificate)


@contextlib.asynccontextmanager
async def control_agent(
    endpoint: ControlEndpoint | None, settings: BrokerSettings
) -> AsyncIterator[ControlledNode | None]:
    """The control agent of a node, or None; its rules end with the block."""
    if endpoint is None:
        yield None
        return
    from anabranch.control.agent import ControlledNode

    url = endpoint.url_for(settings.first_listener.reachable_host)
    agent = ControlledNode(settings, url, endpoint.journal_size, frames=endpoint.frames)
    try:
        yield agent
    finally:
        await agent.close()


async def serve(
    settings: BrokerSettings,
    zookeeper: str,
    metrics_port: int | None = None,
    endpoint: ControlEndpoint | None = None,
) -> None:
    """Run the node until a signal."""
    from anabranch.broker.membership.registration import DuplicateBroker
    from anabranch.broker.node.app import Node
    from anabranch.broker.storage.os_files import files_of
    from anabranch.clients.clock import time_of_day_clock
    from anabranch.controller.zk.kazoo_session import open_kazoo

    hosts, _, chroot = zookeeper.partition("/")
    login = zookeeper_login(settings)
    async with (
        metrics_endpoint(settings.host, metrics_port) as metrics,
        control_agent(endpoint, settings) as agent,
    ):
        node = Node(
            settings,
            connect=lambda: open_kazoo(
                hosts,
                session_timeout_ms=settings.zookeeper_session_timeout_ms,
                chroot=chroot,
                login=login,
                secured=settings.zookeeper_set_acl,
            ),
            files=files_of(settings.directories),
            rng=random.Random(),
            clock_ms=time_of_day_clock(),
            failpoint=None if agent is None else agent.on_step,
            in_turn=None if agent is None else agent.awaits_steps,
        )
        if agent is not None:
            node.on_joined(agent.register)
        try:
            await node.start()
        except DuplicateBroker as error:
            raise ConfigError(str(error)) from None
        metrics.show(node)
        ready = metrics.ready if endpoint is None else f"{metrics.ready} control={endpoint.url}"
        stop = StopSignal()  # so that a start which waits for ZooKeeper can be interrupted
        announcement = asyncio.ensure_future(announce(node, ready))
        try:
            async with serving(endpoint, agent, node):
                await stop.wait(node.failed)
        finally:
            announcement.cancel()
            await node.stop()


@contextlib.asynccontextmanager
async def serving(endpoint: ControlEndpoint | None, agent: ControlledNode | None, node: Node) -> AsyncIterator[None]:
    """Serve the control agent of a started node while the block runs, if there is one."""
    if endpoint is None or agent is None:
        yield
        return
    agent.watch(node)
    async with endpoint.serve(agent, agent_routes):
        yield


def agent_routes() -> Sequence[Route]:
    """The routes of a control agent; their modules are loaded at the first request."""
    from anabranch.control.agent_routes import AGENT_ROUTES

    return AGENT_ROUTES


async def announce(node: Node, more: str = "") -> None:
    """Print the ready line once the node can serve: for a broker, when it has registered; for a controller, at once."""
    settings = node.settings
    trial = asyncio.create_task(warn_while_unreachable(settings.bound(node.server.ports)))
    try:
        if settings.is_broker and not await node.ready(READY_TIMEOUT_MS):
            sys.stderr.write(f"no controller has accepted broker {settings.node_id} yet; still waiting\n")
            await node.ready(None)
    finally:
        trial.cancel()
        await asyncio.gather(trial, return_exceptions=True)
    freeze_memory()
    listen = format_host_port(settings.first_listener.reachable_host, node.port)
    sys.stdout.write(f"ready node={settings.node_id} listen={listen}{more}\n")
    sys.stdout.flush()
