"""Which partitions have a member of the ISR that may lack something: the ones that a check for laggards looks at.

A partition that is led elsewhere, or of which each member of the ISR has the whole log, loses no member by itself. It
is looked at again after it has changed: so the check costs what is written to, however many partitions live here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.broker.replication.changed_partitions import ChangedPartitions

if TYPE_CHECKING:
    from anabranch.broker.replication.isr_change import IsrChange
    from anabranch.broker.replication.partition import Partition


class LaggingReplicas:
    """The partitions of one broker that are to be looked at."""

    def __init__(self) -> None:
        self._changed = ChangedPartitions()
        self._restless: dict[Partition, None] = {}

    def __len__(self) -> int:
        return len({*self._restless, *self._changed})

    def add(self, partition: Partition) -> None:
        """This partition lives here from now on."""
        self._changed.add(partition)

    def remove(self, partition: Partition) -> None:
        """This partition lives here no more."""
        self._changed.remove(partition)
        self._restless.pop(partition, None)

    def changes(self, now_ms: float, own_broker_epoch: int) -> Iterator[tuple[Partition, IsrChange]]:
        """The ISRs to propose: without the members that neither have everything nor had it lately."""
        for partition in self._changed.take():
            self._restless[partition] = None
        for partition in list(self._restless):
            change = partition.propose_shrink(now_ms, own_broker_epoch)
            if change is not None:
                yield partition, change
            elif is_even(partition):
                del self._restless[partition]


def is_even(partition: Partition) -> bool:
    """Whether no member of the ISR lacks anything, as far as this broker is to judge that."""
    members = (partition.followers.get(member) for member in partition.isr)
    end = partition.log.log_end_offset
    return not partition.is_leader or all(one is None or one.log_end_offset == end for one in members)
