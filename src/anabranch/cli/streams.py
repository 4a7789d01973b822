"""`anabranch streams`: runs an instance of a streams application whose topology is in a Python file."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import json
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from anabranch.cli import shared_options
from anabranch.cli.remote import bootstrap, cluster_refusals, security
from anabranch.protocol.host_port import connectable

if TYPE_CHECKING:
    from anabranch.clients.streams.streams import Streams
    from anabranch.clients.streams.topology import Topology
    from anabranch.control.endpoint import ControlEndpoint

SAY_EVERY_S: Final = 0.25


@click.command(
    name="streams",
    epilog="""\b
Examples:
  anabranch streams examples/flights.py:topology --application-id flights --state-dir /tmp/one
  anabranch streams my.module:topology --application-id app --state-dir /var/app --config num_standby_replicas=1
  anabranch streams app.py:topology --application-id app --state-dir one --config processing_guarantee=at_least_once
  anabranch streams app.py:topology --application-id app --state-dir one --control 127.0.0.1:9300
  curl 'http://127.0.0.1:9300/v1/stores/counts?key=home'
""",
)
@click.argument("topology")
@bootstrap
@click.option("--application-id", required=True, help="The group's id, and the prefix of the application's own topics.")
@click.option(
    "--state-dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The state directory of this instance.",
)
@click.option(
    "--config",
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any setting of anabranch.clients.streams.config.",
)
@click.option(
    "--control",
    metavar="HOST:PORT",
    help="Serve queries of this instance's state over HTTP at this address, which is its application_server for the "
    "others unless --config sets that. Port 0: a free one.",
)
@shared_options.CONTROL_TOKEN
@shared_options.CONTROL_CERTIFICATE
@click.option("--log-level", default="warning", show_default=True, help="debug, info, warning or error.")
def command(
    topology: str,
    bootstrap: str,
    application_id: str,
    state_dir: Path,
    settings: tuple[str, ...],
    control: str | None,
    control_token: str | None,
    control_certificate: str | None,
    log_level: str,
) -> None:
    """Run one instance of TOPOLOGY (FILE.py:NAME or MODULE:NAME); start more of them to share the work.

    Prints JSON lines: its tasks, the progress of their restoration, the number of processed records.
    """
    from anabranch.clients.directory_lock import DirectoryInUse
    from anabranch.clients.streams.config import StreamsConfig
    from anabranch.clients.streams.failures import RecordFailed
    from anabranch.clients.streams.streams_errors import StreamsError
    from anabranch.runtime.runner import run

    if importlib.util.find_spec("lmdb") is None:
        raise click.ClickException("stores need LMDB: pip install 'anabranch[streams]'")
    try:
        found = load_topology(topology)
        found.build(application_id)
        config = StreamsConfig(
            application_id=application_id,
            bootstrap_servers=bootstrap,
            state_dir=state_dir,
            security=security(),
            **_parse(settings),
        )
        endpoint = _open_endpoint(control, control_token, control_certificate, config.application_server)
        if endpoint is not None and not config.application_server:
            config = dataclasses.replace(config, application_server=endpoint.url.partition("://")[2])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        with cluster_refusals(bootstrap):
            run(lambda: _work(found, config, endpoint), log_level=log_level)
    except (RecordFailed, StreamsError) as error:
        raise click.ClickException(str(error)) from error.__cause__
    except DirectoryInUse as error:
        raise click.ClickException(f"{error}; give each instance a --state-dir of its own") from None


def load_topology(where: str) -> Topology:
    """Load the topology FILE.py:NAME or MODULE:NAME, or call the function of that name. Raises ValueError."""
    from anabranch.clients.streams.topology import Topology

    place, _, name = where.rpartition(":")
    if place.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        if spec is None or spec.loader is None or not Path(place).exists():
            raise ValueError(f"there is no file {place}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    elif place:
        try:
            module = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise ValueError(f"no topology in {where!r}: {error}") from None
    else:
        raise ValueError(f"a topology is named FILE.py:NAME or MODULE:NAME, not {where!r}")
    found = getattr(module, name, None)
    made = found() if callable(found) else found
    if not isinstance(made, Topology):
        raise ValueError(f"{name} in {place} is not a topology")
    return made


def _parse(settings: tuple[str, ...]) -> dict[str, Any]:
    """Parse NAME=VALUE into keyword arguments of the right types. Raises ValueError."""
    from anabranch.clients.streams.config import StreamsConfig

    types = {field.name: str(field.type) for field in dataclasses.fields(StreamsConfig)}
    parsed: dict[str, Any] = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator or types.get(name) not in ("int", "str", "str | None"):
            raise ValueError(f"--config takes NAME=VALUE with a setting of StreamsConfig, not {setting!r}")
        parsed[name] = int(value) if types[name] == "int" else value
    return parsed


def _open_endpoint(
    address: str | None, token: str | None, certificate: str | None, application_server: str
) -> ControlEndpoint | None:
    """Listen for queries, if an address is given. Raises UsageError, ClickException."""
    if address is None and not (token or certificate):
        return None  # the control plane takes 70 ms to load
    from anabranch.cli.start_errors import cannot_start
    from anabranch.control.endpoint import Address, make_control_endpoint

    if address is not None and not application_server:
        host = Address.parse(address).host
        if connectable(host) != host:
            raise click.UsageError(
                f"--control {address} listens on all addresses: write the one that other instances and clients use, as "
                "--config application_server=HOST:PORT"
            )
    try:
        return make_control_endpoint(address, token, certificate=certificate)
    except OSError as error:
        raise click.ClickException(cannot_start(error)) from None


async def _work(topology: Topology, config: Any, endpoint: ControlEndpoint | None) -> None:
    import asyncio

    from anabranch.clients.streams.streams import Streams
    from anabranch.runtime.runner import StopSignal

    stop = StopSignal()
    async with Streams(topology, config) as streams, _serving(streams, endpoint):
        _say("started", process=streams.process_id.hex(), **({} if endpoint is None else {"control": endpoint.url}))
        talking = asyncio.create_task(_talk(streams))
        try:
            await stop.wait(streams.wait_failed())
        finally:
            talking.cancel()
            await asyncio.gather(talking, return_exceptions=True)
    _say("stopped")


def _serving(streams: Streams, endpoint: ControlEndpoint | None) -> AbstractAsyncContextManager[None]:
    if endpoint is None:
        return contextlib.nullcontext()
    from anabranch.control.events import Events
    from anabranch.control.instance_routes import INSTANCE_ROUTES, ControlledInstance

    return endpoint.serve(ControlledInstance(streams, Events()), lambda: INSTANCE_ROUTES)


async def _talk(streams: Streams) -> None:
    """Print a line whenever the instance's tasks change."""
    import asyncio

    before: dict[str, Any] = {}
    while True:
        facts = {
            "tasks": {str(one.task): [one.state.value, one.position, one.end] for one in streams.progress()},
            "processed": streams.processed,
            "dropped": streams.dropped,
            "restored": streams.restored,
            "moves": dataclasses.asdict(streams.moves),
        }
        if facts != before:
            _say("status", **facts)
            before = facts
        await asyncio.sleep(SAY_EVERY_S)


def _say(event: str, **facts: Any) -> None:
    from anabranch.clients.clock import wall_clock_ms

    sys.stdout.write(json.dumps({"event": event, "t": wall_clock_ms(), **facts}) + "\n")
    sys.stdout.flush()
