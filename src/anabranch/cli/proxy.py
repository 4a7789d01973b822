"""`anabranch proxy`: fault rules and a journal in front of any Kafka cluster."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.cli import shared_options
from anabranch.cli.start_errors import cannot_start
from anabranch.runtime.runner import StopSignal, run

if TYPE_CHECKING:
    import ssl

    from anabranch.broker.authentication.tls_handshakes import ReportingContext
    from anabranch.control.endpoint import ControlEndpoint
    from anabranch.proxy.settings import ProxySettings


@click.command(
    name="proxy",
    epilog="""\b
Examples:
  anabranch proxy --upstream kafka:9092 --control 127.0.0.1:9190
                                                clients of 127.0.0.1:19092 get the cluster's responses, and
  anabranch faults add --api Produce --topic orders --error NOT_LEADER_OR_FOLLOWER --times 2
                                                two of their Produce requests are refused
  anabranch proxy --upstream kafka:9092 --control 127.0.0.1:9190 --control-journal 1000
  anabranch journal --follow                    requests and responses
  anabranch proxy --upstream kafka:9093 --upstream-config client.properties --config-file server.properties
                                                TLS on both sides: the upstream's CA, and the proxy's certificate
""",
)
@click.option("--upstream", required=True, metavar="HOST:PORT[,...]", help="Bootstrap brokers of the cluster.")
@click.option(
    "--port",
    default=19092,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The first port; each broker gets one of the next. 0: free ports.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    help="What clients are told to connect to, if it differs; PORT is that of the first port, the others follow. "
    "Default: the host that the client connected to.",
)
@click.option(
    "--upstream-config",
    type=click.Path(dir_okay=False),
    help="A file of Kafka client properties for the cluster, such as security.protocol. SASL of "
    "clients passes through.",
)
@click.option(
    "--config", "config", multiple=True, metavar="NAME=VALUE", help="A property of the proxy's listeners: ssl.*."
)
@click.option(
    "--config-file",
    type=click.Path(dir_okay=False),
    help="A file of listener properties; with ssl.keystore.location, clients connect with TLS.",
)
@click.option(
    "--control",
    metavar="HOST:PORT",
    help="Serve the control plane (rules, journal) at this address. Port 0: a free one.",
)
@shared_options.CONTROL_TOKEN
@shared_options.CONTROL_CERTIFICATE
@click.option(
    "--control-journal", default=0, type=click.IntRange(0), metavar="N", help="Keep the last N exchanges of clients."
)
@shared_options.CONTROL_FRAMES
@click.option("--rules", type=click.Path(dir_okay=False), help="Apply the rules of this file from the start.")
@shared_options.log_level("warning")
def command(
    upstream: str,
    port: int,
    host: str,
    advertise: str | None,
    upstream_config: str | None,
    config: tuple[str, ...],
    config_file: str | None,
    control: str | None,
    control_token: str | None,
    control_certificate: str | None,
    control_journal: int,
    control_frames: bool,
    rules: str | None,
    log_level: str,
) -> None:
    """Run a proxy in front of a cluster: print one `ready` line, run until SIGINT or SIGTERM.

    Each broker of the cluster gets a port here, and responses name these ports. Everything else passes unchanged,
    except what a rule of `anabranch faults` matches.
    """
    from anabranch.broker.config.broker_settings import ConfigError
    from anabranch.cli.node import place
    from anabranch.clients.config import parse_servers
    from anabranch.control.endpoint import make_control_endpoint
    from anabranch.protocol.host_port import bracket, parse_host
    from anabranch.proxy.settings import ProxySettings

    advertised_host, advertised_port = place(advertise or "")
    if advertised_port and not port:
        raise click.UsageError("--advertise HOST:PORT needs a first port: write --port")
    try:
        settings = ProxySettings(
            upstream=parse_servers(upstream),
            host=parse_host(bracket(host)),
            port=port,
            advertised_host=advertised_host,
            advertised_port=advertised_port,
            tls=_own_tls(config_file, config),
            upstream_tls=_upstream_tls(upstream_config),
            journal_size=control_journal,
            frames=control_frames,
        )
        control_endpoint = make_control_endpoint(
            control, control_token, control_journal, frames=control_frames, certificate=control_certificate
        )
        run(lambda: serve(settings, control_endpoint, rules), log_level=log_level)
    except (ConfigError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(cannot_start(error)) from None


def _upstream_tls(path: str | None) -> ssl.SSLContext | None:
    """The TLS context for the upstream. Raises UsageError for unsupported or invalid settings."""
    if path is None:
        return None
    from anabranch.broker.config.properties_file import properties_in
    from anabranch.clients.security_config import security_of

    try:
        properties = properties_in(Path(path).read_text())
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol.startswith("SASL_"):  # the clients log in
            properties["security.protocol"] = "SSL" if protocol == "SASL_SSL" else "PLAINTEXT"
        return security_of(properties).tls
    except (ValueError, OSError) as error:
        raise click.UsageError(f"--upstream-config {path}: {error}") from None


def _own_tls(path: str | None, pairs: tuple[str, ...]) -> ReportingContext | None:
    """The TLS context of the listeners, if they use TLS. Raises ConfigError, ValueError, OSError."""
    from anabranch.broker.authentication.listener_properties import ListenerProperties
    from anabranch.broker.authentication.tls_handshakes import ReportingContext
    from anabranch.broker.config.listeners import Listener
    from anabranch.broker.config.properties_file import properties_of
    from anabranch.clients.tls import TlsSettings, server_context

    given = properties_of(path, pairs)
    if not any(name.startswith("ssl.keystore.") for name in given):
        if given:
            raise click.UsageError(f"{', '.join(given)}: TLS needs at least ssl.keystore.location")
        return None
    properties = ListenerProperties(Listener("SSL", "SSL", "", 0), given)
    return server_context(TlsSettings.read(properties.get), properties.client_auth, ReportingContext)


async def serve(settings: ProxySettings, control_endpoint: ControlEndpoint | None, rules: str | None) -> None:
    """Run a proxy until a signal."""
    from anabranch.proxy.control import PROXY_ROUTES, ControlledProxy
    from anabranch.proxy.proxy import Proxy

    stop = StopSignal()
    async with Proxy(settings) as proxy:
        if rules:
            from anabranch.cli.faults import follow_rules

            follow_rules(proxy.faults, rules)
        controlled = "" if control_endpoint is None else f" control={control_endpoint.url}"
        sys.stdout.write(f"ready bootstrap={proxy.bootstrap_servers}{controlled}\n")
        sys.stdout.flush()
        async with (
            contextlib.nullcontext()
            if control_endpoint is None
            else control_endpoint.serve(ControlledProxy(proxy), lambda: PROXY_ROUTES)
        ):
            await stop.wait()
