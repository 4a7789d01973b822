"""A KIP-848 group of stock consumers beside the others of the swarm: they hold no gates and know no generations.

Their coordinator holds the gates by what it assigns. Where the topic only grows, their first deliveries of each key are
in order (I4). Where it shrinks all the same, they lose the order, but no record. Perhaps one member has gates.
"""

from __future__ import annotations

import random
from typing import Final, Literal

from tests.sim.clients import Reader
from tests.sim.cluster import SimCluster
from tests.sim.deleting import GroupHistory
from tests.sim.resizer import Resizer, growth

GROUP: Final = "stock-members"
LIKELIHOOD: Final = 0.35
SHRINK: Final = "reshard.legacy.consumers.shrink"
Policy = Literal["growth", "auto", "warn"]
"""Only growth; shrinks that are refused while stock consumers read; shrinks that are not."""


class StockMembers:
    """The group of one schedule."""

    def __init__(self, cluster: SimCluster, rng: random.Random, *, slow: float) -> None:
        self.policy: Policy = rng.choice(("growth", "growth", "auto", "warn"))
        self.history = GroupHistory(cluster.history)
        self.history.barriers = False
        self._resizes = growth(rng, rng.choice((2, 3, 4)))
        count, one_has_gates = rng.choice((1, 2, 3)), rng.random() < 0.3
        names = [f"{GROUP}-{number}" for number in range(count)]
        self.members = [Reader(cluster, one, slow=slow, group=GROUP, protocol="consumer") for one in names]
        for number, one in enumerate(self.members):
            one.history = self.history
            one.has_gates = one_has_gates and number > 0

    @property
    def keeps_order(self) -> bool:
        """Whether the group receives each key's records in order."""
        return self.policy == "growth"

    def restrict(self, resizer: Resizer) -> None:
        """Have the topic resized as the policy says."""
        if self.policy == "growth":
            first, resizer.steps = self._resizes
            resizer.counts = [first]
        resizer.configs[SHRINK] = "warn" if self.policy == "warn" else "auto"
