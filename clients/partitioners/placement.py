"""Places keys of a resized topic from its configuration, for producers that know no generations.

A resized topic has two read-only properties, `reshard.base` and `reshard.history` (DescribeConfigs): its keys are
placed by linear hashing over the base and the last count. A topic that was never resized has neither: at its initial
count, linear hashing places keys as Kafka's own clients do.

A placement is cached until a broker refuses a record that was placed by it. Then it is read again, once, however many
records of that time are still refused. With `reshard.legacy.producers=verify` a record is stored in its key's partition
or not at all, so a stale placement costs a refusal and never the order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from anabranch.clients.producer.partitioner import Sticky
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.linear_hashing import address, base_of
from anabranch.protocol.values import value

KEYLESS_RUN = 100
"""Number of records without a key that stay with one partition, so that batches fill."""


@value
class Placement:
    """The placement of one topic's keys, as read at one moment."""

    base: int
    count: int

    def partition(self, key: bytes) -> int:
        """Return the partition of a key."""
        return address(murmur2(key), self.base, self.count)


def placement_of(properties: Mapping[str, str | None], partitions: int) -> Placement:
    """Return the placement of a topic with these properties and this number of partitions.

    Raises ValueError for properties that no such broker produces.
    """
    base, history = properties.get("reshard.base"), properties.get("reshard.history")
    if not base or not history:
        return Placement(base_of(partitions), partitions)
    try:
        _, count = history.rsplit(",", 1)[-1].split(":")
        return Placement(int(base), int(count))
    except ValueError:
        raise ValueError(f"reshard.base={base} with reshard.history={history} is not a valid placement") from None


class Placements:
    """The placements of all topics of one producer. An unknown one has to be read."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._known: dict[str, Placement] = {}
        self._keyless: dict[str, tuple[Sticky, int]] = {}

    def cached(self, topic: str) -> Placement | None:
        """Return the cached placement; None if it has to be read."""
        return self._known.get(topic)

    def read(self, topic: str, placement: Placement) -> None:
        """Cache a placement."""
        self._known[topic] = placement

    def on_refusal(self, topic: str, placement: Placement) -> None:
        """Handle a refused record: drop this placement, unless another was read meanwhile."""
        if self._known.get(topic) is placement:
            del self._known[topic]

    def partition(self, topic: str, placement: Placement, key: bytes | None) -> int:
        """Return the partition of a record; records without a key go to one of those that take records, in runs."""
        if key is not None:
            return placement.partition(key)
        sticky, sent = self._keyless.get(topic) or (Sticky(self._rng), 0)
        live = range(placement.count)
        if sent and sent % KEYLESS_RUN == 0:
            sticky.move_on(live)
        self._keyless[topic] = sticky, sent + 1
        return sticky.current(live)
