"""The partitions that are assigned to a consumer, each with its progress, read in rotation.

`replace` drops all progress, because committed offsets are read again; `adjust` keeps that of kept partitions. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

from anabranch.clients.consumer.progress import UNKNOWN, PartitionProgress
from anabranch.protocol.topic_partition import TopicPartition


class Assignment:
    """The partitions of one member, read in rotation."""

    def __init__(self) -> None:
        self._progress: dict[TopicPartition, PartitionProgress] = {}
        self._first = 0
        self._beginnings = itertools.count()
        self.positioned = True
        """Whether every partition has a position since the last change."""
        self.generations: Mapping[str, int] = {}
        """Topic -> the generation that the assignment was based on."""

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._progress

    def __getitem__(self, partition: TopicPartition) -> PartitionProgress:
        return self._progress[partition]

    def __iter__(self) -> Iterator[PartitionProgress]:
        return iter(self._progress.values())

    def __len__(self) -> int:
        return len(self._progress)

    def get(self, partition: TopicPartition) -> PartitionProgress | None:
        """Return the progress of a partition, None if it is not assigned."""
        return self._progress.get(partition)

    def replace(self, partitions: Collection[TopicPartition]) -> None:
        """Replace the assignment: all progress is dropped, because committed offsets are read again."""
        self._progress = {
            partition: PartitionProgress(partition, beginnings=self._beginnings) for partition in sorted(partitions)
        }
        self.positioned = False

    def adjust(self, partitions: Collection[TopicPartition]) -> None:
        """Change the assignment: kept partitions continue at their positions."""
        kept = self._progress
        self.replace(partitions)
        self._progress.update({partition: kept[partition] for partition in self._progress.keys() & kept.keys()})

    def note_positioned(self, *, complete: bool) -> None:
        """Note a position lookup; `complete` says whether every existing partition has one."""
        self.positioned = complete

    def note_generations(self, generations: Mapping[str, int]) -> None:
        """Note the topic generations that the assignment was based on."""
        self.generations = generations

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that are no longer assigned."""
        self._progress = {one: progress for one, progress in self._progress.items() if one not in partitions}

    def drop_topic(self, topic: str) -> None:
        """Forget a deleted topic: a new one of the same name starts without progress."""
        self.drop({one for one in self._progress if one.topic == topic})

    def in_turn(self) -> list[PartitionProgress]:
        """Return all partitions, starting one further each time, so that a busy one does not starve the others."""
        rows = list(self._progress.values())
        if not rows:
            return rows
        self._first = (self._first + 1) % len(rows)
        return rows[self._first :] + rows[: self._first]

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offsets to commit: known positions that are not committed yet."""
        return {
            progress.partition: progress.position
            for progress in self
            if progress.position != UNKNOWN and progress.position != progress.committed
        }
