"""The Streams application of a chaos run: it numbers the records of each key, by a store.

anabranch streams anabranch.chaos.numbering_application:topology --application-id numbering --state-dir one
"""

from __future__ import annotations

from typing import Final

from anabranch import Context, Handler, Topology
from anabranch.chaos.clients import TOPIC
from anabranch.clients.streams.serdes import TEXT

NUMBERED: Final = "numbered"
STORE: Final = "numbers"
SEPARATOR: Final = "|"


def number(context: Context, key: bytes, value: str, forward: Handler) -> None:
    """Hand the record on with its number: 1 for the first of its key."""
    numbers = context.store(STORE)
    mine = int(numbers.get(key) or b"0") + 1
    numbers.put(key, b"%d" % mine)
    forward(key, f"{mine}{SEPARATOR}{value}")


def topology() -> Topology:
    """The whole application."""
    application = Topology()
    application.stream(TOPIC, value=TEXT).process(number, stores=[STORE]).to(NUMBERED, value=TEXT)
    return application
