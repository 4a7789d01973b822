"""Which partitions have a member of the ISR that may lack something: the ones that a check for laggards looks at.

A partition that is led elsewhere, or of which each member of the ISR has the whole log, loses no member by itself. It
is looked at again after it has changed: so the check costs what is written to, however many partitions live here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch.broker.replication.isr_change import IsrChange
    from anabranch.broker.replication.partition import Partition


class Stragglers:
    """The partitions of one broker that are to be looked at."""

    def __init__(self) -> None:
        self._restless: dict[_Look, None] = {}
        self._looks: dict[Partition, _Look] = {}

    def __len__(self) -> int:
        return len(self._restless)

    def add(self, partition: Partition) -> None:
        """This partition lives here from now on."""
        look = self._looks[partition] = _Look(partition, self._restless)
        look.stirred()

    def remove(self, partition: Partition) -> None:
        """This partition lives here no more."""
        look = self._looks.pop(partition)
        self._restless.pop(look, None)
        partition.listeners.pop(look, None)

    def changes(self, now_ms: float, own_broker_epoch: int) -> Iterator[tuple[Partition, IsrChange]]:
        """The ISRs to propose: without the members that neither have everything nor had it lately."""
        for look in list(self._restless):
            partition = look.partition
            change = partition.propose_shrink(now_ms, own_broker_epoch)
            if change is not None:
                yield partition, change
            elif is_even(partition):
                del self._restless[look]
                partition.listeners[look] = None


def is_even(partition: Partition) -> bool:
    """Whether no member of the ISR lacks anything, as far as this broker is to judge that."""
    members = (partition.followers.get(member) for member in partition.isr)
    end = partition.log.log_end_offset
    return not partition.is_leader or all(one is None or one.log_end_offset == end for one in members)


class _Look:
    """Listens to one partition."""

    __slots__ = ("partition", "restless")

    def __init__(self, partition: Partition, restless: dict[_Look, None]) -> None:
        self.partition = partition
        self.restless = restless

    def stirred(self) -> None:
        """A member of the ISR may lack something now."""
        self.restless[self] = None
