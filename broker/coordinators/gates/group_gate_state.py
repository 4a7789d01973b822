"""What is kept of one group beside its commits, while its coordinator holds gates for it: notes, and two deadlines.

Nothing here says that a gate is open: that is computed from commits whenever it is asked (`group_gates`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from anabranch.broker.coordinators.offsets.committed_offsets import TopicPartition


@dataclass(slots=True)
class GroupGateState:
    """What is kept of one group beside its commits."""

    noted: dict[str, int] = field(default_factory=dict)
    """Topic -> the generation up to which children were begun for the group, if it was to be."""
    withheld: frozenset[TopicPartition] = frozenset()
    """What nobody is assigned in a KIP-848 group; a classic group knows it itself."""
    awaited: set[TopicPartition] = field(default_factory=set)
    """The partitions whose commits closed gates wait for."""
    waiting_since_ms: dict[str, int] = field(default_factory=dict)
    """Topic -> since when something of it is withheld."""
    let_go: set[str] = field(default_factory=set)
    """The topics in which the group is not waited for any longer where it has no commit."""
    opening_at_ms: int | None = None
    """When the group is to divide its work anew."""
    patient_until_ms: int | None = None
    """When it is not waited for any longer in some topic."""

    def forget_topics(self, names: Collection[str]) -> None:
        """Topics are gone: nothing of this holds for others of their names."""
        for name in names:
            self.noted.pop(name, None)
            self.waiting_since_ms.pop(name, None)
            self.let_go.discard(name)

    def next_deadline(self) -> int | None:
        """When the group has to be looked at."""
        due = (self.opening_at_ms, self.patient_until_ms)
        return min((one for one in due if one is not None), default=None)
