"""`--control HOST:PORT`: the control plane of the cluster in this process; without the option its code is not loaded.

The socket listens before the ready line; the server is loaded at the first request, so an unused control plane costs
nothing. Events are recorded from the start. Every client of this address can change the cluster in any way: an address
other than loopback requires a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from anabranch.clock.cluster_clock import ClusterClock
from anabranch.control.actions import Actions
from anabranch.control.controlled_cluster import ControlledCluster
from anabranch.control.events import Events
from anabranch.control.route import FILE_BYTES_MAX
from anabranch.control.states import States
from anabranch.control.telemetry import ClientTelemetry
from anabranch.protocol.host_port import connectable, format_host_port, parse_host_port
from anabranch.runtime.sockets import family_of

if TYPE_CHECKING:
    import ssl

    from anabranch.cluster.in_process import Cluster
    from anabranch.control.controlled_cluster import Controllable
    from anabranch.control.route import Route
    from anabranch.journal.journal import Journal

log: Final = logging.getLogger(__name__)
LOCAL_NAME: Final = "localhost"
LOAD_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Address:
    """The address on which the control plane listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse HOST:PORT, or :PORT for loopback. Raises UsageError for other text."""
        try:
            host, port = parse_host_port(text)
        except ValueError as error:
            raise click.UsageError(f"--control takes HOST:PORT: {error}") from None
        return cls(host or "127.0.0.1", port)

    @property
    def is_local(self) -> bool:
        """Whether the address is loopback."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == LOCAL_NAME


class ControlEndpoint:
    """A listening socket, and a server that is loaded at the first connection."""

    def __init__(
        self,
        address: Address,
        token: str,
        journal_size: int = 0,
        *,
        frames: bool = False,
        file_bytes_max: int = FILE_BYTES_MAX,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._listener = socket.create_server((address.host, address.port), family=family_of(address.host))
        self._listener.setblocking(False)
        self._host = address.host
        self._token = token
        self.journal_size = journal_size
        self.frames = frames
        self._file_bytes_max = file_bytes_max
        self._tls = tls

    @property
    def url(self) -> str:
        """The root URL, which a browser on this machine can open."""
        return self._url_with(connectable(self._host))

    def url_for(self, host: str) -> str:
        """The root URL for other machines; `host` replaces a wildcard address."""
        reachable = self._host if connectable(self._host) == self._host else host
        return self._url_with(reachable)

    def _url_with(self, host: str) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{format_host_port(host, self._listener.getsockname()[1])}"

    @contextlib.asynccontextmanager
    async def open(self, cluster: Cluster, clock: ClusterClock | None = None) -> AsyncIterator[None]:
        """Serve while the block runs; `clock` is the cluster's clock, if it has its own."""
        events = Events()
        cluster.on_node(events.watch)
        cluster.on_replaced(events.forget)
        telemetry = ClientTelemetry(cluster, events)
        cluster.on_node(telemetry.watch)
        cluster.on_replaced(telemetry.forget)
        actions, journal = Actions(cluster, events), self._journal(cluster)
        if journal is not None:
            journal.knows(lambda: events.after(0))
        states = States(cluster, actions, events, journal, clock, self._fork)
        controlled = ControlledCluster(cluster, actions, events, journal, clock, states, telemetry)
        if cluster.has_rules:
            _ = controlled.faults  # creates the rules, so that hits are events
        async with self.serve(controlled):
            try:
                yield
            finally:
                await states.close()

    @contextlib.asynccontextmanager
    async def serve(
        self, controlled: Controllable, load_routes: Callable[[], Sequence[Route]] = tuple
    ) -> AsyncIterator[None]:
        """Serve these routes while the block runs, in place of a cluster's routes; they are loaded when needed."""
        serving = asyncio.create_task(self._serve(controlled, load_routes))
        serving.add_done_callback(_log_failure)
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            self._listener.close()

    @contextlib.asynccontextmanager
    async def _fork(self, cluster: Cluster, lead_ms: int) -> AsyncIterator[str]:
        """Run a forked cluster with a control plane like this one."""
        clock = ClusterClock.new()
        if clock is not None:
            clock.lead_by(lead_ms)
        endpoint = ControlEndpoint(
            Address(self._host, 0),
            self._token,
            self.journal_size,
            frames=self.frames,
            file_bytes_max=self._file_bytes_max,
            tls=self._tls,
        )
        async with cluster if clock is None else clock.running(cluster), endpoint.open(cluster, clock):
            yield endpoint.url

    def _journal(self, cluster: Cluster) -> Journal | None:
        if not self.journal_size:
            return None
        from anabranch.journal.journal import Journal

        journal = Journal(self.journal_size, cluster.node_ids, frames=self.frames)
        cluster.on_node(journal.watch)
        return journal

    async def _first_request(self) -> None:
        """Wait for a connection without accepting it."""
        loop = asyncio.get_running_loop()
        arrived = asyncio.Event()
        loop.add_reader(self._listener, arrived.set)
        try:
            await arrived.wait()
        finally:
            loop.remove_reader(self._listener)

    async def _serve(self, controlled: Controllable, load_routes: Callable[[], Sequence[Route]]) -> None:
        while True:
            await self._first_request()
            try:
                from anabranch.control.server import ControlServer

                routes = load_routes()
            except OSError as error:  # no file descriptor is free now
                log.warning("the control plane cannot be loaded yet, its requests wait: %s", error)
                await asyncio.sleep(LOAD_AGAIN_S)
            else:
                break
        options: dict[str, Any] = {"file_bytes_max": self._file_bytes_max, "tls": self._tls}
        if routes:
            options["routes"] = routes
        server = ControlServer(controlled, self._listener, self._token, **options)
        try:
            await server.start()
            await asyncio.get_running_loop().create_future()
        finally:
            await server.stop()


def _log_failure(serving: asyncio.Task[None]) -> None:
    if not serving.cancelled() and (error := serving.exception()) is not None:
        log.error("bug: the control plane has ended", exc_info=error)


def make_control_endpoint(
    address_text: str | None,
    token: str | None,
    journal_size: int = 0,
    *,
    frames: bool = False,
    file_bytes_max: int = FILE_BYTES_MAX,
    certificate: str | None = None,
) -> ControlEndpoint | None:
    """Create the endpoint for the options. Raises UsageError if they conflict, OSError if the port is taken."""
    if address_text is None:
        is_token_given = bool(token) and not _is_from_environment("control_token")
        options = {"token": is_token_given, "certificate": certificate, "journal": journal_size, "frames": frames}
        if name := next((name for name, given in options.items() if given), ""):
            raise click.UsageError(f"--control-{name} needs --control")
        return None
    if frames and not journal_size:
        raise click.UsageError("--control-frames needs --control-journal")
    address = Address.parse(address_text)
    if not address.is_local and not token:
        raise click.UsageError(f"--control {address_text}: a non-loopback address needs --control-token TOKEN")
    if importlib.util.find_spec("aiohttp") is None:
        raise click.UsageError("--control needs aiohttp: pip install 'anabranch[control]'")
    tls = None if certificate is None else _serving_context(certificate)
    return ControlEndpoint(address, token or "", journal_size, frames=frames, file_bytes_max=file_bytes_max, tls=tls)


def _serving_context(certificate: str) -> ssl.SSLContext:
    """The TLS context of `--control-certificate`. Raises UsageError."""
    from anabranch.control.tls import serving_context

    try:
        return serving_context(certificate)
    except (ValueError, OSError) as error:
        reason = str(error).removeprefix(f"ssl.keystore.location={certificate}: ")
        raise click.UsageError(f"--control-certificate {certificate}: {reason}") from None


def _is_from_environment(option: str) -> bool:
    """Whether the environment has set an option of the current command. It may have done so for another command."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(option) is click.core.ParameterSource.ENVIRONMENT
