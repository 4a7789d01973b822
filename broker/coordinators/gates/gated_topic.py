"""One topic whose gates this broker's coordinators hold for stock members (rules R7, R9, R20).

Its state comes from the metadata (lineage, leader epochs, cuts) and from leaders' answers (`LeaderAnswer`): log starts,
key epoch ends, and the ends of what is deliverable below a cut. From a group's commits it computes which partitions no
stock member may be assigned, and why. It also computes where children start for a group that existed before them.

`reshard.legacy.consumers` selects the topics:

    auto      topics with `enable.ordered.delivery=true` that hold batches with generations, or whose
              `reshard.legacy.producers` is refuse or verify; other topics grow as in Kafka
    gate      every topic that was resized
    ignore    none

Invariant: an answer with an older leader epoch than the metadata's is ignored (R7); missing data keeps a gate closed.
Pure. `protocol.order_gates` decides which key epochs are open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from anabranch.broker.metadata.metadata_cache import TopicImage
from anabranch.protocol import order_gates
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.order_gates import UNKNOWN, Wait
from anabranch.protocol.values import value

if TYPE_CHECKING:
    from anabranch.broker.config.broker_settings import TopicConfig

ANY_OFFSET: Final = 1 << 62
"""Replaces a missing commit, once the group's commit is no longer required."""
OffsetOf = Callable[[int], int]
"""Returns the group's stable commit in a partition, UNKNOWN if it has none."""


def are_held(config: TopicConfig, *, has_generations: bool) -> bool:
    """Return whether coordinators hold gates on a topic with this configuration (see the table)."""
    if config.reshard_legacy_consumers != "auto":
        return config.reshard_legacy_consumers == "gate"
    return config.enable_ordered_delivery and (
        has_generations or config.reshard_legacy_producers in ("refuse", "verify")
    )


@value
class LeaderAnswer:
    """The answer of one partition's leader, with its leader epoch."""

    leader_epoch: int
    log_start: int
    cuts: Mapping[KeyEpoch, int]
    """The end offset of each key epoch."""
    ends: Mapping[KeyEpoch, int]
    """The offset after the last deliverable record of each key epoch."""


class GatedTopic:
    """The lineage of one topic, with its leaders' answers."""

    def __init__(self, image: TopicImage) -> None:
        self._answers: dict[int, LeaderAnswer] = {}
        self.image = image
        self._find_gated()

    def refresh(self, image: TopicImage) -> None:
        """Replace the metadata by newer metadata; a new leader changes no lineage."""
        known, self.image = self.image, image
        lineage = (image.base, image.history)
        if lineage != (known.base, known.history) or image.partitions.keys() != known.partitions.keys():
            self._find_gated()

    def _find_gated(self) -> None:
        self.lineage = Lineage(self.image.base, self.image.history)
        receiving = self.lineage.receiving_partitions()
        self._gated = [index for index in self.image.partitions if index in receiving]

    # -- queries to leaders

    def cuts_of(self, partition: int) -> list[tuple[KeyEpoch, int]]:
        """Return the key epochs of a partition that were cut, each with the first leader epoch after it."""
        found, starts = [], dict(self.image.partitions[partition].gen_start)
        for key_epoch in self.lineage.key_epochs(partition):
            following = self.lineage.next(key_epoch)
            if following is not None and following.generation in starts:
                found.append((key_epoch, starts[following.generation]))
        return found

    def affected_partitions(self) -> list[int]:
        """Return the partitions that a resize has affected; only these need queries."""
        return [
            index
            for index in self.image.partitions
            if len(self.lineage.class_generations(index)) > 1 or index >= self.lineage.history[0][1]
        ]

    def unknown_key_epochs(self) -> list[int]:
        """Return the affected partitions without an answer in the current leader epoch."""
        return [index for index in self.affected_partitions() if self._of(index) is None]

    def record_answer(self, partition: int, answer: LeaderAnswer) -> None:
        """Store a leader's answer."""
        self._answers[partition] = answer

    def _of(self, partition: int) -> LeaderAnswer | None:
        answer, image = self._answers.get(partition), self.image.partitions.get(partition)
        return (
            answer if answer is not None and image is not None and answer.leader_epoch >= image.leader_epoch else None
        )

    # -- gates

    def withheld(self, committed: OffsetOf) -> dict[int, tuple[Wait, ...]]:
        """Return the partitions with a closed gate ahead of the group, each with the commits that the gate needs."""
        found: dict[int, tuple[Wait, ...]] = {}
        closed: dict[KeyEpoch, tuple[Wait, ...]] = {}

        def is_open(key_epoch: KeyEpoch) -> bool:
            if waits := self._waits(key_epoch, committed):
                closed[key_epoch] = waits
            return not waits

        for index in self._gated:
            position = max(committed(index), self._start(index), 0)
            following = order_gates.next_closed(self.lineage, index, position, is_open=is_open, cut=self._cut)
            if following is not None:
                found[index] = closed[following]
        return found

    def _waits(self, key_epoch: KeyEpoch, committed: OffsetOf) -> tuple[Wait, ...]:
        if not self.lineage.sources(key_epoch):
            return ()
        return tuple(
            order_gates.waits(
                self.lineage,
                key_epoch,
                there=self.image.partitions,
                end=self._end,
                committed=committed,
                start=self._start,
            )
        )

    def _start(self, partition: int) -> int:
        answer = self._of(partition)
        return UNKNOWN if answer is None else answer.log_start

    def _cut(self, key_epoch: KeyEpoch) -> int:
        answer = self._of(key_epoch.partition)
        return UNKNOWN if answer is None else answer.cuts.get(key_epoch, UNKNOWN)

    def _end(self, key_epoch: KeyEpoch) -> int:
        answer = self._of(key_epoch.partition)
        return UNKNOWN if answer is None else answer.ends.get(key_epoch, UNKNOWN)

    def deleted_ahead(self, partitions: Iterable[int], committed: OffsetOf) -> dict[int, int]:
        """Return the log starts of these partitions, where they are after the group's commit."""
        starts = {index: self._start(index) for index in partitions}
        return {index: start for index, start in starts.items() if start > max(committed(index), 0)}

    # -- starts of children (R20)

    def children(self, since: int) -> dict[KeyEpoch, int]:
        """Return the first key epochs of children created after generation `since`, each with its parent partition."""
        found: dict[KeyEpoch, int] = {}
        for generation, _ in self.lineage.history[1:]:
            for index in self._gated if generation > since else ():
                if generation in self.lineage.class_generations(index):
                    sources = self.lineage.predecessors(KeyEpoch(index, generation))
                    if sources and all(source.partition < index for source in sources):
                        found[KeyEpoch(index, generation)] = sources[0].partition
        return found

    def starts(
        self, children: Mapping[KeyEpoch, int], committed: OffsetOf, *, was_there: bool
    ) -> dict[int, int] | None:
        """Return the starts to commit in children without a commit, or with one of a previous incarnation.

        A group without a commit on the parent is skipped, unless it `was_there` before the child. None: the log start
        of a child is not known yet.
        """
        begins: dict[int, int] = {}
        for child, parent in children.items():
            if was_there or committed(parent) != UNKNOWN or parent in begins:
                answer, known = self._of(child.partition), committed(child.partition)
                if answer is None:
                    return None
                if known == UNKNOWN or (known < answer.log_start and self.lineage.previous(child) is not None):
                    begins[child.partition] = answer.log_start
        return begins
