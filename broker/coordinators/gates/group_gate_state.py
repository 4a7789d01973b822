"""A group's gate state besides its commits: notes about topics, and two deadlines.

It never stores that a gate is open: `group_gates` computes that from commits each time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

from anabranch.broker.coordinators.offsets.committed_offsets import TopicPartition
from anabranch.protocol.values import slotted


@slotted
class GroupGateState:
    """The gate state of one group."""

    noted: dict[str, int] = field(default_factory=dict)
    """Topic -> the generation up to which the starts of children were committed, if necessary."""
    withheld: frozenset[TopicPartition] = frozenset()
    """The partitions that a KIP-848 group may not be assigned; a classic group keeps its own."""
    awaited: set[TopicPartition] = field(default_factory=set)
    """The partitions whose commits closed gates wait for."""
    waiting_since_ms: dict[str, int] = field(default_factory=dict)
    """Topic -> the time since which a partition of it is withheld."""
    let_go: set[str] = field(default_factory=set)
    """Topics in which a missing commit no longer closes gates."""
    opening_at_ms: int | None = None
    """When the group rebalances because gates have opened."""
    patient_until_ms: int | None = None
    """When a missing commit stops closing gates in some topic."""

    def forget_topics(self, names: Collection[str]) -> None:
        """Drop the state of deleted topics; it does not apply to new topics of the same names."""
        if not (self.noted or self.waiting_since_ms or self.let_go):
            return  # as in nearly all of thousands of groups
        for name in names:
            self.noted.pop(name, None)
            self.waiting_since_ms.pop(name, None)
            self.let_go.discard(name)

    def next_deadline(self) -> int | None:
        """Return the earlier of the two deadlines."""
        due = (self.opening_at_ms, self.patient_until_ms)
        return min((one for one in due if one is not None), default=None)
