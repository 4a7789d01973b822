"""`anabranch up --processes`: runs a cluster of processes, with a control socket for `anabranch nodes`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.broker.config.broker_settings import BrokerSettings, ConfigError
from anabranch.broker.node.start_settings import IDS, check_reachable, refuse_twice, start_settings, warn_of_open_doors
from anabranch.broker.profiles.profile_choice import versions_of
from anabranch.cluster.cluster_settings import OPTIONS
from anabranch.cluster.launched_agent import AgentOptions
from anabranch.cluster.process_registry import LauncherSocket
from anabranch.cluster.processes import ProcessCluster
from anabranch.controller.zk.connect_string import parse_connect_string
from anabranch.runtime.runner import StopSignal
from anabranch.state.data_directory import BUILT_IN, LOCAL, node_command_options, refuse_other_form

if TYPE_CHECKING:
    from anabranch.control.endpoint import ControlEndpoint
    from anabranch.control.route import Route

LOGIN: Final = "zookeeper.auth"


async def serve_processes(
    *,
    brokers: int,
    host: str,
    port: int,
    listeners: Sequence[str],
    data_dir: str | None,
    zookeeper: str,
    properties: Mapping[str, str],
    log_level: str,
    metrics_port: int | None = None,
    kafka: str = "",
    endpoint: ControlEndpoint | None = None,
) -> None:
    """Run a cluster of processes until a signal. A node that ends is reported; `anabranch nodes` can start it again."""
    # Report an invalid property once here, instead of once by each node.
    refuse_twice(properties, {**OPTIONS, "broker.rack": "`anabranch node --rack` for each node"})
    named = {"listeners": ",".join(listeners)} if listeners else {}
    settings = start_settings(BrokerSettings(host=host), {**properties, **named})
    check_reachable(settings)
    warn_of_open_doors(settings)
    if zookeeper not in (BUILT_IN, LOCAL):
        _check_ensemble(zookeeper)
    if zookeeper == BUILT_IN and LOGIN in properties:
        raise ConfigError(
            f"{LOGIN} needs --zookeeper {LOCAL}, or HOST:PORT of an ensemble: the built-in ZooKeeper has no logins and "
            "no owners of znodes"
        )
    versions = versions_of(kafka, range(settings.node_id, settings.node_id + brokers), settings.kafka_version)
    if data_dir is not None:
        refuse_other_form(data_dir, processes=True)
    cluster = ProcessCluster(
        brokers,
        zookeeper=zookeeper,
        host=host,
        port=port,
        listeners=listeners,
        directory=data_dir,
        properties={name: text for name, text in properties.items() if name not in IDS},
        log_level=log_level,
        metrics_port=metrics_port,
        first_id=settings.node_id,
        kafka=versions,
        agents=None if endpoint is None else AgentOptions(endpoint.journal_size, endpoint.frames),
    )
    stop = StopSignal()
    async with contextlib.AsyncExitStack() as stack:
        with stop.ending_start():
            await stack.enter_async_context(cluster)
        if missing := await node_command_options(*cluster.inter_broker_address(cluster.brokers[0]), cluster.security):
            complain(f"warning: {missing}")
        launcher_socket = LauncherSocket(cluster, complain)
        await launcher_socket.open()
        controlled = "" if endpoint is None else f" control={endpoint.url}"
        try:
            async with contextlib.AsyncExitStack() as serving:
                with stop.ending_start():
                    await serving.enter_async_context(control_plane(endpoint, cluster, launcher_socket))
                sys.stdout.write(f"ready bootstrap={cluster.bootstrap_servers}{controlled}\n")
                sys.stdout.flush()
                if endpoint is not None:
                    complain(f"dashboard: {endpoint.url}/")
                await stop.wait(cluster.zookeeper_ended())
        finally:
            await launcher_socket.close()
            await asyncio.gather(*(node.stop() for node in cluster.nodes.values()))


@contextlib.asynccontextmanager
async def control_plane(
    endpoint: ControlEndpoint | None, cluster: ProcessCluster, launcher: LauncherSocket
) -> AsyncIterator[None]:
    """Serve the control plane of a running cluster while the block runs, if there is one."""
    if endpoint is None:
        yield
        return
    from anabranch.cluster.process_snapshots import ProcessSnapshots
    from anabranch.control.front.launched_front import launched_front

    snapshots = ProcessSnapshots(cluster, launcher)
    async with launched_front(cluster, launcher.start, snapshots) as front, endpoint.serve(front, front_routes):
        yield


def front_routes() -> Sequence[Route]:
    """The routes of a front; their modules are loaded at the first request."""
    from anabranch.control.front.front_routes import FRONT_ROUTES

    return FRONT_ROUTES


def complain(line: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _check_ensemble(zookeeper: str) -> None:
    """Raise ConfigError if a text is no connect string, or an unknown word."""
    reason = ""
    try:
        parse_connect_string(zookeeper)
    except ValueError as error:
        reason = f": {error}"
    if reason or ":" not in zookeeper:
        raise ConfigError(f"--zookeeper {zookeeper!r}: write {BUILT_IN}, {LOCAL}, or HOST:PORT of an ensemble{reason}")
