"""Where the keys of a resized topic lie, read from its configuration, for producers that know nothing of generations.

A topic that was resized shows two read-only properties, `reshard.base` and `reshard.history` (DescribeConfigs): its
keys lie by linear hashing over the base and the last count. One that was never resized shows neither: with the count
that it began with, linear hashing places keys as Kafka's own clients do.

What was read is believed until a broker refuses a record that was placed by it. Then it is read again, once, however
many records of that time are still to be refused. With `reshard.legacy.producers=verify` a record is stored where its
key belongs or not at all, so an answer that is out of date costs a refusal and never an order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from anabranch.clients.producer.partitioner import Sticky
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.linear_hashing import address, base_of
from anabranch.protocol.values import value

KEYLESS_RUN = 100
"""Records without a key that stay with one partition, so that batches fill."""


@value
class Placement:
    """How one topic places keys, as it was read at one moment."""

    base: int
    count: int

    def partition(self, key: bytes) -> int:
        """The partition of a key."""
        return address(murmur2(key), self.base, self.count)


def placement_of(properties: Mapping[str, str | None], partitions: int) -> Placement:
    """The placement of a topic with these properties, of which metadata shows so many partitions.

    Raises ValueError for properties that no broker of ours shows.
    """
    base, history = properties.get("reshard.base"), properties.get("reshard.history")
    if not base or not history:
        return Placement(base_of(partitions), partitions)
    try:
        _, count = history.rsplit(",", 1)[-1].split(":")
        return Placement(int(base), int(count))
    except ValueError:
        raise ValueError(f"reshard.base={base} with reshard.history={history} tells of no placement") from None


class Placements:
    """The placements of all topics that one producer writes to. One that is not known has to be read."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._known: dict[str, Placement] = {}
        self._keyless: dict[str, tuple[Sticky, int]] = {}

    def known(self, topic: str) -> Placement | None:
        """What is believed; None if it has to be read."""
        return self._known.get(topic)

    def read(self, topic: str, placement: Placement) -> None:
        """It was read."""
        self._known[topic] = placement

    def refused(self, topic: str, placement: Placement) -> None:
        """A record that was placed by this was refused: forget it, unless another was read meanwhile."""
        if self._known.get(topic) is placement:
            del self._known[topic]

    def partition(self, topic: str, placement: Placement, key: bytes | None) -> int:
        """The partition of a record; one without a key goes to any that takes records, a while to the same."""
        if key is not None:
            return placement.partition(key)
        sticky, sent = self._keyless.get(topic) or (Sticky(self._rng), 0)
        live = range(placement.count)
        if sent and sent % KEYLESS_RUN == 0:
            sticky.move_on(live)
        self._keyless[topic] = sticky, sent + 1
        return sticky.current(live)
