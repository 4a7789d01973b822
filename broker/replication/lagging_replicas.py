"""The partitions whose ISR may have a lagging member, which the ISR shrink check has to examine.

A partition led elsewhere, or whose ISR members all have the whole log, needs no check until it changes. The cost of a
check thus depends on the written partitions, not on all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from anabranch.broker.replication.changed_partitions import ChangedPartitions

if TYPE_CHECKING:
    from anabranch.broker.replication.isr_change import IsrChange
    from anabranch.broker.replication.partition import Partition

PARTITIONS_PER_STEP: Final = 100
"""Partitions between two yields, of some microseconds each."""


class LaggingReplicas:
    """The partitions of one broker to check."""

    def __init__(self) -> None:
        self._changed = ChangedPartitions()
        self._restless: dict[Partition, None] = {}

    def __len__(self) -> int:
        return len({*self._restless, *self._changed})

    def add(self, partition: Partition) -> None:
        """Add a partition that this broker hosts."""
        self._changed.add(partition)

    def remove(self, partition: Partition) -> None:
        """Remove a partition that this broker no longer hosts."""
        self._changed.remove(partition)
        self._restless.pop(partition, None)

    def changes(
        self, now_ms: Callable[[], float], own_broker_epoch: Callable[[], int]
    ) -> Iterator[tuple[Partition, IsrChange] | None]:
        """Yield the ISRs to propose: without members that neither have everything nor had it lately.

        Yields None after some partitions, so that other work can run.
        """
        for some in self._changed.take_all(PARTITIONS_PER_STEP):
            self._restless.update(dict.fromkeys(some))
            if len(some) == PARTITIONS_PER_STEP:
                yield None
        for checked, partition in enumerate(list(self._restless), 1):
            if partition in self._restless:  # else it was removed during a yield
                change = partition.propose_shrink(now_ms(), own_broker_epoch())
                if change is not None:
                    yield partition, change
                elif is_even(partition):
                    del self._restless[partition]
            if checked % PARTITIONS_PER_STEP == 0:
                yield None


def is_even(partition: Partition) -> bool:
    """Return whether no ISR member lacks records, as far as this broker is responsible."""
    members = (partition.followers.get(member) for member in partition.isr)
    end = partition.log.log_end_offset
    return not partition.is_leader or all(one is None or one.log_end_offset == end for one in members)
