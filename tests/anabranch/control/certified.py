"""Certificate files for the control plane, and its server on a port with or without TLS."""

from __future__ import annotations

import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch.clients.certificates import CertificateAuthority
from anabranch.control.server import ControlServer
from anabranch.control.tls import serving_context
from tests.anabranch.control.echo import ROUTES, Controlled

HERE = ("127.0.0.1",)
LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


class Files:
    """Files of one authority, and of its server."""

    def __init__(
        self, folder: Path, name: str, hosts: tuple[str, ...] = HERE, now: datetime.datetime | None = None
    ) -> None:
        authority = CertificateAuthority(now=now)
        issued = authority.issue([("CN", name)], hosts)
        self.ca, self.server = folder / f"{name}-ca.pem", folder / f"{name}.pem"
        self.ca.write_bytes(authority.certificate)
        self.server.write_bytes(issued.key + issued.certificate + issued.chain)

    @property
    def serving(self) -> ssl.SSLContext:
        return serving_context(str(self.server))


@asynccontextmanager
async def serving(controlled: Controlled, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A control server, whose token is "secret"; yields its root URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    one = ControlServer(controlled, listener, "secret", ROUTES, tls=tls)
    await one.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await one.stop()
