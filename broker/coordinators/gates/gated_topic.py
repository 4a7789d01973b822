"""What the coordinators of this broker know of one topic whose gates they hold for others (rules R7, R9, R20).

Put together from the metadata (lineage, leader epochs, cuts) and from what leaders have said (`Told`): where logs
begin, where segments were cut, and where what is deliverable below a cut ends. For a group's commits it answers which
partitions nobody may be assigned, each with its reasons, and where children begin for a group that was there before.

Invariant: an answer that was given under an older leader epoch than the metadata has is not believed (R7); what is not
known keeps a gate closed. Pure. Which segments are open is `protocol.order_gates`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from anabranch.broker.metadata.metadata_cache import TopicImage
from anabranch.protocol import order_gates
from anabranch.protocol.lineage import Lineage, Segment
from anabranch.protocol.order_gates import UNKNOWN, Wait
from anabranch.protocol.values import value

ANY_OFFSET: Final = 1 << 62
"""Stands for the commit of a group that is not waited for any longer."""
OffsetOf = Callable[[int], int]
"""The group's stable commit in a partition, UNKNOWN if it has none."""


@value
class LeaderAnswer:
    """What the leader of one partition has said, in this leader epoch."""

    leader_epoch: int
    log_start: int
    cuts: Mapping[Segment, int]
    """Where segments end."""
    ends: Mapping[Segment, int]
    """Behind the last record of a segment that can be delivered."""


class GatedTopic:
    """One topic."""

    def __init__(self, image: TopicImage) -> None:
        self.refresh(image)
        self._told: dict[int, LeaderAnswer] = {}

    def refresh(self, image: TopicImage) -> None:
        """Take newer metadata."""
        self.image = image
        self.lineage = Lineage(image.base, image.history)
        self._gated = [
            index
            for index in image.partitions
            if any(self.lineage.sources(segment) for segment in self.lineage.segments(index))
        ]

    # -- what leaders have to be asked

    def cuts_of(self, partition: int) -> list[tuple[Segment, int]]:
        """The segments of a partition that were cut, each with the first leader epoch behind it."""
        found, starts = [], dict(self.image.partitions[partition].gen_start)
        for segment in self.lineage.segments(partition):
            following = self.lineage.next(segment)
            if following is not None and following.generation in starts:
                found.append((segment, starts[following.generation]))
        return found

    def affected_partitions(self) -> list[int]:
        """The partitions that a resize has touched: all else about them is known."""
        return [
            index
            for index in self.image.partitions
            if len(self.lineage.class_generations(index)) > 1 or index >= self.lineage.history[0][1]
        ]

    def unknown_segments(self) -> list[int]:
        """The partitions whose leaders have not answered in their present epochs."""
        return [index for index in self.affected_partitions() if self._of(index) is None]

    def record_answer(self, partition: int, told: LeaderAnswer) -> None:
        """A leader has answered."""
        self._told[partition] = told

    def _of(self, partition: int) -> LeaderAnswer | None:
        told, image = self._told.get(partition), self.image.partitions.get(partition)
        return told if told is not None and image is not None and told.leader_epoch >= image.leader_epoch else None

    # -- what a group may be given

    def withheld(self, committed: OffsetOf) -> dict[int, tuple[Wait, ...]]:
        """The partitions that come behind something that the group has not read, each with what it waits for."""
        found: dict[int, tuple[Wait, ...]] = {}
        for index in self._gated:
            closed = order_gates.next_closed(
                self.lineage,
                index,
                max(committed(index), self._start(index), 0),
                is_open=lambda segment: not self._waits(segment, committed),
                cut=self._cut,
            )
            if closed is not None:
                found[index] = self._waits(closed, committed)
        return found

    def _waits(self, segment: Segment, committed: OffsetOf) -> tuple[Wait, ...]:
        return tuple(
            order_gates.waits(
                self.lineage,
                segment,
                there=self.image.partitions,
                end=self._end,
                committed=committed,
                start=self._start,
            )
        )

    def _start(self, partition: int) -> int:
        told = self._of(partition)
        return UNKNOWN if told is None else told.log_start

    def _cut(self, segment: Segment) -> int:
        told = self._of(segment.partition)
        return UNKNOWN if told is None else told.cuts.get(segment, UNKNOWN)

    def _end(self, segment: Segment) -> int:
        told = self._of(segment.partition)
        return UNKNOWN if told is None else told.ends.get(segment, UNKNOWN)

    def deleted_ahead(self, partitions: Iterable[int], committed: OffsetOf) -> dict[int, int]:
        """Return where the logs of these partitions begin, for those that begin behind the group's commit."""
        starts = {index: self._start(index) for index in partitions}
        return {index: start for index, start in starts.items() if start > max(committed(index), 0)}

    # -- where children begin (R20)

    def children(self, since: int) -> dict[Segment, int]:
        """The first segments of partitions that resizes after generation `since` have made -> what each split off."""
        found: dict[Segment, int] = {}
        for generation, _ in self.lineage.history[1:]:
            for index in self._gated if generation > since else ():
                if generation in self.lineage.class_generations(index):
                    sources = self.lineage.predecessors(Segment(index, generation))
                    if sources and all(source.partition < index for source in sources):
                        found[Segment(index, generation)] = sources[0].partition
        return found

    def starts(self, children: Mapping[Segment, int], committed: OffsetOf, *, was_there: bool) -> dict[int, int] | None:
        """Where the group has to be said to begin in children: those without a commit, or with one of an earlier life.

        A group that has committed nothing on a parent has no say, unless it `was_there` before the child. None: it is
        not known yet where their logs begin.
        """
        begins: dict[int, int] = {}
        for child, parent in children.items():
            if was_there or committed(parent) != UNKNOWN or parent in begins:
                told, known = self._of(child.partition), committed(child.partition)
                if told is None:
                    return None
                if known == UNKNOWN or (known < told.log_start and self.lineage.previous(child) is not None):
                    begins[child.partition] = told.log_start
        return begins
