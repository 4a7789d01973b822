"""The options for TLS of the control plane, which several commands share."""

from __future__ import annotations

from typing import Final

import click

CERTIFICATE: Final = click.option(
    "--control-certificate",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Serve the control plane with TLS (https): a PEM file with the private key, the certificate and its chain.",
)
CA: Final = click.option(
    "--control-ca",
    "ca_file",
    default="",
    envvar="ANABRANCH_CONTROL_CA",
    show_envvar=True,
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The PEM file of the CA that an https control plane is verified by. Default: the system's CAs.",
)
