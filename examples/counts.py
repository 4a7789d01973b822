"""How often each key has come: the smallest application with state.

anabranch streams examples/counts.py:topology --application-id counts --state-dir /tmp/counts
"""

from __future__ import annotations

from clients.streams.topology import Topology


def topology() -> Topology:
    """The whole application."""
    application = Topology()
    application.stream("clicks").count("clicks-of-key").to("counts")
    return application
