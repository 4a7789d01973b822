"""Which partition a record without an explicit one goes to.

Keyed records follow their hash (D10): linear hashing over the live partitions of an ordered topic, so that every resize
moves as few keys as it can, and Kafka's `hash % partitions` where the topic or the user asks for today's behaviour. At
`base * 2**k` partitions both agree. Records without a key stick to one live partition per batch (KIP-480).
"""

from __future__ import annotations

import random
from collections.abc import Sequence


def modulo(key_hash: int, partitions: int) -> int:
    """Kafka's own choice for a keyed record."""
    return key_hash % partitions


class Sticky:
    """The partition that records without a key go to until its batch is full."""

    __slots__ = ("_current", "_rng")

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._current = -1

    def current(self, live: Sequence[int]) -> int:
        """The partition to use now; another one if the last is no longer live."""
        if self._current not in live:
            self._current = live[self._rng.randrange(len(live))]
        return self._current

    def move_on(self, live: Sequence[int]) -> None:
        """A batch was closed: the next one goes elsewhere, so that load spreads."""
        if len(live) > 1:
            others = [partition for partition in live if partition != self._current]
            self._current = others[self._rng.randrange(len(others))]
