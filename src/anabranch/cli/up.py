"""`anabranch up`: a whole cluster on this machine.

By default one process holds all brokers, with ZooKeeper and the logs in memory: no Java, no disk, ready in a fraction
of a second. With --processes every broker is a separate process, and so is ZooKeeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from anabranch.cli import shared_options
from anabranch.cli.metrics import metrics_endpoint
from anabranch.cli.options_file import options_file
from anabranch.cli.start_errors import cannot_start
from anabranch.runtime.runner import StopSignal, freeze_memory, postpone_collection, resume_collection, run

if TYPE_CHECKING:
    from anabranch.clock.cluster_clock import ClusterClock
    from anabranch.cluster.in_process import Cluster
    from anabranch.control.endpoint import ControlEndpoint
    from anabranch.state.snapshot import Snapshot

INSTEAD: Final = {
    "advertise": "; write --host with --processes",
    "racks": "; else write `anabranch node --rack` for each",
}
"""The alternative for an option that a cluster of processes does not have."""


@click.command(
    name="up",
    epilog="""\b
Examples:
  anabranch up                                  three brokers on 127.0.0.1:9092, 9093 and 9094
  anabranch up --brokers 1 --port 0             one broker on a free port, shown in the ready line
  anabranch up --data-dir ./data                keep the logs on disk
  anabranch up --config num.partitions=4        any broker property; broker.id=0 counts the brokers from 0
  anabranch up --kafka 4.1                      clients see a Kafka 4.1; --kafka 1=3.9,2=4.1 one in an upgrade
  anabranch up --racks a,b --config replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector
  anabranch up --options anabranch.toml         these options from a file: brokers = 3, [config] "num.partitions" = 4
  anabranch up --metrics-port 9464              metrics at http://127.0.0.1:9464/metrics
  anabranch up --control 127.0.0.1:9190         a dashboard and an HTTP API to control nodes
  anabranch up --from seeded.zip                start from a saved snapshot
  anabranch up --clock 10x                      ten times as fast
  anabranch up --rules faults.json              apply fault rules from the start
  anabranch up --processes                      one process per broker, so they use all cores
  anabranch up --processes --control 127.0.0.1:9190
      kills and freezes real processes, with the same HTTP API
  anabranch up --processes --zookeeper local    with a real ZooKeeper (needs Java)
""",
)
@click.option(
    "--options",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=options_file,
    help="A TOML file of these options, such as anabranch.toml; the command line has priority.",
)
@click.option("--brokers", type=click.IntRange(1, 64), help="The number of brokers. Default: 3, or that of --from.")
@click.option(
    "--port",
    default=9092,
    show_default=True,
    help="The first broker's port; the others get the next ones. 0: free ports.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--listener",
    "listeners",
    multiple=True,
    metavar="NAME://HOST:PORT",
    help="A listener of the first broker, instead of --host and --port; may be repeated: SSL://127.0.0.1:9093.",
)
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    help="What clients are told to connect to, if it differs; PORT is that of the first broker, the others follow.",
)
@click.option("--data-dir", type=click.Path(file_okay=False), help="Keep logs here instead of in memory.")
@click.option("--processes", is_flag=True, help="One process per broker, and one for ZooKeeper.")
@click.option(
    "--zookeeper",
    metavar="built-in|local|HOST:PORT",
    help="With --processes: the built-in ZooKeeper (default), a real one from Java (local), or a running one.",
)
@click.option("--racks", metavar="NAME,...", help="The racks of the brokers, in turn.")
@shared_options.BROKER_PROPERTIES
@shared_options.BROKER_PROPERTIES_FILE
@click.option(
    "--kafka",
    metavar="VERSION|ID=VERSION,...",
    default="",
    help="The version of Kafka that clients see: 2.8, 3.5, 3.9 (default), 4.0, 4.1, 4.2; per broker: 1=3.9,2=4.1.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve Prometheus metrics at http://HOST:PORT/metrics; with --processes, the first broker's. 0: a free port.",
)
@click.option(
    "--control",
    metavar="HOST:PORT",
    help="Serve the control plane (actions, state, waits) at this address. Port 0: a free one.",
)
@shared_options.CONTROL_TOKEN
@shared_options.CONTROL_CERTIFICATE
@click.option(
    "--control-journal",
    default=0,
    type=click.IntRange(0),
    metavar="N",
    help="Keep the last N exchanges of clients, and as many of brokers, for the control plane.",
)
@click.option(
    "--control-file-mib",
    default=256,
    show_default=True,
    type=click.IntRange(1),
    metavar="MIB",
    help="The largest snapshot file that the control plane accepts, as sent and inflated.",
)
@shared_options.CONTROL_FRAMES
@click.option(
    "--from",
    "snapshot",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Start from a snapshot, in memory; broker ids begin with --config broker.id.",
)
@click.option(
    "--clock",
    metavar="steps|10x",
    help="The cluster's clock: `steps` stops it, for `anabranch clock advance`; 10x makes it ten times as fast.",
)
@click.option(
    "--rules",
    type=click.Path(dir_okay=False),
    help="Apply the rules of this file from the start: a JSON list, or [[rules]] in TOML.",
)
@shared_options.log_level("warning")
def command(
    brokers: int | None,
    port: int,
    host: str,
    listeners: tuple[str, ...],
    advertise: str | None,
    data_dir: str | None,
    processes: bool,
    zookeeper: str | None,
    racks: str | None,
    config: tuple[str, ...],
    config_file: str | None,
    kafka: str,
    metrics_port: int | None,
    control: str | None,
    control_token: str | None,
    control_certificate: str | None,
    control_journal: int,
    control_frames: bool,
    control_file_mib: int,
    snapshot: str | None,
    clock: str | None,
    rules: str | None,
    log_level: str,
) -> None:
    """Start a cluster, print one `ready` line, run until SIGINT or SIGTERM.

    With --processes a node that dies is reported in one line, and `anabranch nodes start ID` starts it again.
    """
    held = read_snapshot(snapshot, data_dir) if snapshot else None
    brokers = brokers or (3 if held is None else len(held.node_ids))
    refuse_too_high_ports(port, brokers)
    refused = {"advertise": advertise, "racks": racks, "clock": clock, "from": snapshot, "rules": rules}
    check_processes(processes, zookeeper, metrics_port, **refused)
    advertised_host, advertised_port = advertised_address(advertise or "", brokers, listeners)
    options: dict[str, Any] = {"host": host, "port": port, "listeners": listeners, "data_dir": data_dir, "kafka": kafka}
    with failures_explained():
        from anabranch.broker.config.properties_file import properties_of
        from anabranch.state.data_directory import BUILT_IN

        options["properties"] = properties_of(config_file, config)
        listen = functools.partial(
            control_endpoint,
            control,
            control_token,
            control_journal,
            frames=control_frames,
            file_bytes_max=control_file_mib << 20,
            certificate=control_certificate,
        )
        if processes:
            options |= {"zookeeper": zookeeper or BUILT_IN, "metrics_port": metrics_port, "endpoint": listen()}
            run_processes(brokers=brokers, log_level=log_level, **options)
            return
        pace = clock_pace(clock, control)
        options |= {"advertised_host": advertised_host, "advertised_port": advertised_port}
        cluster = new_cluster(brokers, racks=(racks or "").split(","), snapshot=held, **options)
        if rules:
            from anabranch.cli.faults import follow_rules

            follow_rules(cluster.faults, rules)
        endpoint = listen()  # after all that can be refused: nobody would close it
        loop = clock_loop() if endpoint is not None or pace is not None or rules else None
        run(lambda: serve(cluster, host, metrics_port, endpoint, pace), log_level=log_level, loop_factory=loop)


@contextlib.contextmanager
def failures_explained() -> Iterator[None]:
    """Turn an error that prevents the start into one line with its remedy."""
    from anabranch.broker.config.broker_settings import ConfigError
    from anabranch.clients.directory_lock import DirectoryInUse

    try:
        yield
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    except DirectoryInUse as error:
        raise click.ClickException(f"cannot start: {error}; stop it, or use another --data-dir") from None
    except OSError as error:
        raise click.ClickException(cannot_start(error)) from None
    finally:
        resume_collection()


def new_cluster(brokers: int, **options: Any) -> Cluster:
    """Create a cluster in this process; `options` are arguments of `Cluster`."""
    postpone_collection()
    from anabranch.cluster.in_process import Cluster

    return Cluster(brokers, **options)


def refuse_too_high_ports(port: int, brokers: int, option: str = "--port") -> None:
    """Raise UsageError if a broker's port would exceed 65535."""
    if port and not 0 < port <= 65536 - brokers:
        raise click.UsageError(
            f"{option} {port} leaves too few ports for {brokers} brokers; write a port up to {65536 - brokers}"
        )


def advertised_address(advertise: str, brokers: int, listeners: Sequence[str]) -> tuple[str, int]:
    """The advertised host, and the first broker's advertised port; 0 for the port that it listens on."""
    from anabranch.cli.node import place

    host, port = place(advertise)
    refuse_too_high_ports(port, brokers, "--advertise: port")
    if port and listeners:
        raise click.UsageError("--advertise HOST:PORT is for one listener; with --listener, write --advertise HOST")
    return host, port


def check_processes(processes: bool, zookeeper: str | None, metrics_port: int | None, **options: object) -> None:
    """Raise UsageError for options that a cluster of processes does not have, or only such a cluster has."""
    if not processes:
        if zookeeper:
            raise click.UsageError("--zookeeper needs --processes; otherwise an in-memory ZooKeeper is used")
        return
    if metrics_port == 0:
        raise click.UsageError("--metrics-port 0 is not possible with --processes: write the port of the first broker")
    for name, given in options.items():
        if given:
            raise click.UsageError(f"--{name} needs a cluster in one process{INSTEAD.get(name, '')}")


def read_snapshot(path: str, data_dir: str | None) -> Snapshot:
    """Read a snapshot from a file. Raises UsageError if the file holds none."""
    from anabranch.state.snapshot import InvalidSnapshot, Snapshot

    if data_dir:
        raise click.UsageError(f"--from keeps its data in memory; for --data-dir, unzip {path} there")
    try:
        return Snapshot.from_bytes(Path(path).read_bytes())
    except (InvalidSnapshot, OSError) as error:
        raise click.UsageError(f"--from {path}: {error}") from None


def control_endpoint(
    control: str | None, token: str | None, journal_size: int, **options: Any
) -> ControlEndpoint | None:
    """Create the control endpoint, if an option asks for it. Raises UsageError for conflicting options."""
    if not (control or token or journal_size or options["frames"] or options["certificate"]):
        return None
    from anabranch.control.endpoint import make_control_endpoint

    return make_control_endpoint(control, token, journal_size, **options)


def clock_pace(clock: str | None, control: str | None) -> float | None:
    """The pace of the cluster's clock, if given. Raises UsageError if it is invalid, or nothing could advance it."""
    if clock is None:
        return None
    from anabranch.clock.spans import parse_pace

    try:
        found = parse_pace(clock)
    except ValueError as error:
        raise click.UsageError(f"--clock {clock}: {error}") from None
    if not found and not control:
        raise click.UsageError("--clock steps needs --control, for `anabranch clock advance`")
    return found


def clock_loop() -> type[asyncio.AbstractEventLoop]:
    """The loop class that supports a separate clock."""
    from anabranch.clock.loop import ClockLoop

    return ClockLoop


def run_processes(*, log_level: str, **options: Any) -> None:
    """Run a cluster of processes; `options` are arguments of `serve_processes`."""
    from anabranch.cli.process_clusters import serve_processes
    from anabranch.cluster.node_process import NodeFailed
    from anabranch.cluster.zookeeper import ZooKeeperUnavailable

    try:
        run(lambda: serve_processes(log_level=log_level, **options), log_level=log_level)
    except (NodeFailed, ZooKeeperUnavailable) as error:
        raise click.ClickException(str(error)) from None


def own_clock() -> ClusterClock | None:
    """A clock for the cluster, if the loop supports it."""
    from anabranch.clock.cluster_clock import ClusterClock

    return ClusterClock.new()


async def serve(
    cluster: Cluster,
    host: str,
    metrics_port: int | None,
    endpoint: ControlEndpoint | None = None,
    pace: float | None = None,
) -> None:
    """Run a single-process cluster until a signal; from the ready line on, its clock runs at this pace."""
    from anabranch.state.data_directory import node_command_options

    stop = StopSignal()
    clock = own_clock() if endpoint is not None or pace is not None or cluster.has_rules else None
    living = cluster if clock is None else clock.running(cluster)
    async with contextlib.AsyncExitStack() as stack:
        with stop.ending_start():
            metrics = await stack.enter_async_context(metrics_endpoint(host, metrics_port))
            await stack.enter_async_context(living)
        cluster.on_node(metrics.show)
        node = next(iter(cluster.nodes.values()))
        between = node.settings.between_brokers
        if missing := await node_command_options(between.host, node.server.ports[between.name], node.settings.security):
            click.echo(f"warning: {missing}", err=True)
        freeze_memory()
        controlled = "" if endpoint is None else f" control={endpoint.url}"
        if clock is not None and pace is not None:
            clock.run_at(pace)
        sys.stdout.write(f"ready bootstrap={cluster.bootstrap_servers}{metrics.ready}{controlled}\n")
        sys.stdout.flush()
        if endpoint is not None:
            click.echo(f"dashboard: {endpoint.url}/", err=True)
        async with contextlib.nullcontext() if endpoint is None else endpoint.open(cluster, clock):
            await stop.wait(cluster.wait_failed())
