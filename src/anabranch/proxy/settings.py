"""The settings of a proxy."""

from __future__ import annotations

import ssl

from anabranch.broker.authentication.tls_handshakes import ReportingContext
from anabranch.protocol.framing import FRAME_BYTES_MAX
from anabranch.protocol.values import value


@value(kw_only=True)
class ProxySettings:
    """The settings of a proxy: its listeners and its upstream."""

    upstream: tuple[tuple[str, int], ...]
    """The bootstrap addresses of the upstream."""
    host: str = "127.0.0.1"
    port: int = 0
    """The first port; brokers get the following ones. 0: free ports."""
    advertised_host: str = ""
    """The advertised host; empty: the address at which the client has connected."""
    advertised_port: int = 0
    """The advertised port of the first port, as behind a NAT; the others follow. 0: they stay as they are."""
    tls: ReportingContext | None = None
    """TLS of the proxy's listeners."""
    upstream_tls: ssl.SSLContext | None = None
    frame_bytes_max: int = FRAME_BYTES_MAX
    """The largest collected frame; passing frames may be larger."""
    journal_size: int = 0
    frames: bool = False
    """Whether the journal keeps the bytes."""

    def port_for_clients(self, port: int) -> int:
        """The port by which clients reach a port here."""
        return port + self.advertised_port - self.port if self.advertised_port else port
