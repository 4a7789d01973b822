"""Options that several commands share: they have one name, one type and one meaning everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from anabranch.cli import completion
from anabranch.controller.zk.connect_string import parse_connect_string
from anabranch.runtime.runner import LOG_LEVELS

BROKER_PROPERTIES: Final = click.option(
    "--config",
    "--set",
    "config",
    multiple=True,
    metavar="NAME=VALUE",
    help="A broker property; may be repeated.",
    shell_complete=completion.broker_properties,
)
BROKER_PROPERTIES_FILE: Final = click.option(
    "--config-file",
    type=click.Path(dir_okay=False),
    help="A file of broker properties (server.properties); for passwords, which are visible in --config.",
)
CONTROL_TOKEN: Final = click.option(
    "--control-token",
    envvar="ANABRANCH_CONTROL_TOKEN",
    show_envvar=True,
    metavar="TOKEN",
    help="The token of the control plane served here; required for non-loopback addresses.",
)
CONTROL_FRAMES: Final = click.option(
    "--control-frames",
    is_flag=True,
    help="Also keep the bytes of exchanges, for `anabranch journal --capture`, except those that may contain secrets.",
)
CONTROL_CERTIFICATE: Final = click.option(
    "--control-certificate",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Serve the control plane with TLS (https): a PEM file with the private key, the certificate and its chain.",
)
CONTROL_CA: Final = click.option(
    "--control-ca",
    "ca_file",
    default="",
    envvar="ANABRANCH_CONTROL_CA",
    show_envvar=True,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The PEM file of the CA that an https control plane is verified by. Default: the system's CAs.",
)


def check_zookeeper(context: click.Context, parameter: click.Parameter, text: str) -> str:
    """Return the connect string of an ensemble, with which a command starts. Raises BadParameter."""
    try:
        parse_connect_string(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return text


def log_level(default: str) -> Callable[[Any], Any]:
    """Return the option --log-level."""
    return click.option(
        "--log-level",
        default=default,
        show_default=True,
        type=click.Choice(LOG_LEVELS),
        help="The log level of stderr.",
    )
