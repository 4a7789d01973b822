"""Where a proxy listens, and what it is in front of."""

from __future__ import annotations

import ssl

from anabranch.broker.authentication.tls_handshakes import ReportingContext
from anabranch.protocol.framing import FRAME_BYTES_MAX
from anabranch.protocol.values import value


@value(kw_only=True)
class ProxySettings:
    """Where a proxy listens, and what it is in front of."""

    upstream: tuple[tuple[str, int], ...]
    """Where clients would begin."""
    host: str = "127.0.0.1"
    port: int = 0
    """The first port; brokers get those that follow. 0: free ones."""
    advertised_host: str = ""
    """The host that clients are told; empty: the address at which they have come."""
    tls: ReportingContext | None = None
    """Of the ports here."""
    upstream_tls: ssl.SSLContext | None = None
    frame_bytes_max: int = FRAME_BYTES_MAX
    """The largest frame that is looked at; what only passes may be larger."""
    journal_size: int = 0
    frames: bool = False
    """Whether the journal keeps the bytes."""
