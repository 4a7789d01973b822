"""The flights of each aircraft, in the order of their first arrival; repeated flights change nothing.

So the aggregate is exact at least once, too, as long as nothing is lost, and nothing new comes before what it followed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from anabranch.clients.streams.topology import Topology


def nowhere() -> list[int]:
    """An aircraft that has not flown."""
    return []


def add(key: bytes, line: bytes, flown: list[int]) -> list[int]:
    """One more flight, unless it is known."""
    flight = zlib.crc32(line)
    return flown if flight in flown else [*flown, flight]


def topology() -> Topology:
    """The whole application."""
    application = Topology()
    application.stream("flights").aggregate("per-aircraft", nowhere, add).to("flights-per-aircraft")
    return application


def batch(flights: Iterable[tuple[bytes, bytes]]) -> dict[bytes, list[int]]:
    """What it has to be in the end."""
    itineraries: dict[bytes, list[int]] = {}
    for key, line in flights:
        itineraries[key] = add(key, line, itineraries.get(key, nowhere()))
    return itineraries
