"""How often each key has come, and with what the last time: a small application with a row of state per key.

anabranch streams examples/counts.py:topology --application-id counts --state-dir /tmp/counts
"""

from __future__ import annotations

from typing import Any

from anabranch.clients.streams.serdes import TEXT
from anabranch.clients.streams.topology import Topology


def add(key: bytes, page: str, row: dict[str, Any]) -> dict[str, Any]:
    """One more click."""
    return {"count": row["count"] + 1, "latest": page}


def topology() -> Topology:
    """The whole application."""
    application = Topology()
    clicks = application.stream("clicks", value=TEXT)
    clicks.aggregate("clicks-of-key", lambda: {"count": 0, "latest": ""}, add).to("counts")
    return application
