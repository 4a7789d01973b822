"""`anabranch up --processes`: runs a cluster of processes, with a control socket for `anabranch nodes`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence

from anabranch.broker.config.broker_settings import BrokerSettings, ConfigError
from anabranch.broker.node.start_settings import IDS, check_reachable, refuse_twice, start_settings, warn_of_open_doors
from anabranch.broker.profiles.profile_choice import versions_of
from anabranch.cluster.in_process import OPTIONS
from anabranch.cluster.process_registry import LauncherSocket
from anabranch.cluster.processes import ProcessCluster
from anabranch.runtime.runner import StopSignal
from anabranch.state.data_directory import node_command_options, refuse_other_form


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
) -> None:
    """Run a cluster of processes until a signal. A node that ends is reported; `anabranch nodes` can start it again."""
    # Report an invalid property once here, instead of once by each node.
    refuse_twice(properties, {**OPTIONS, "broker.rack": "`anabranch node --rack` for each node"})
    named = {"listeners": ",".join(listeners)} if listeners else {}
    settings = start_settings(BrokerSettings(host=host), {**properties, **named})
    check_reachable(settings)
    warn_of_open_doors(settings)
    if zookeeper != "local" and ":" not in zookeeper:
        raise ConfigError(f"--zookeeper {zookeeper!r}: write local, or HOST:PORT of an ensemble")
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
    )
    stop = StopSignal()
    async with contextlib.AsyncExitStack() as stack:
        with stop.ending_start():
            await stack.enter_async_context(cluster)
        if missing := await node_command_options(*cluster.inter_broker_address(cluster.brokers[0]), cluster.security):
            complain(f"warning: {missing}")
        launcher_socket = LauncherSocket(cluster, complain)
        await launcher_socket.open()
        sys.stdout.write(f"ready bootstrap={cluster.bootstrap_servers}\n")
        sys.stdout.flush()
        try:
            await stop.wait(cluster.zookeeper_ended())
        finally:
            await launcher_socket.close()
            await asyncio.gather(*(node.stop() for node in cluster.nodes.values()))


def complain(line: str) -> None:
    """Write one line to stderr."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
