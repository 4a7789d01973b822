"""How far the input of each task of one instance is read, and which segments have to wait: for the task's other topics,
or for state.

What is known is what the consumer knows: a lineage that lags behind makes somebody wait, and lets nobody go ahead.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from anabranch.clients.streams import joined, state_handover
from anabranch.clients.streams.joined import Reading
from anabranch.protocol.lineage import Segment
from anabranch.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from anabranch.clients.consumer.consumer import Consumer
    from anabranch.clients.streams.tasks import Task
    from anabranch.clients.streams.topology import Built

log = logging.getLogger(__name__)


class StreamsError(Exception):
    """The group has no place for this instance, or none for this application."""


class Inputs:
    """See the module. The consumer is given before it is used."""

    consumer: Consumer

    def __init__(self, built: Built) -> None:
        self._own = built.repartition_topics.keys()
        self._held: set[tuple[TopicPartition, int]] = set()
        """What was told to wait for another topic."""

    def are_there(self, task: Task) -> list[TopicPartition]:
        """Those that are read here and were not removed: only for them something can be committed."""
        mine = self.consumer.assignment()
        return [one for one in task.partitions if one in mine and self.is_there(one)]

    def is_there(self, partition: TopicPartition) -> bool:
        """Whether a partition was not removed."""
        present = self.consumer.partitions_of(partition.topic)
        return not present or partition.partition in present

    def joined(self, task: Task) -> bool:
        """Whether several topics with order meet in a task. StreamsError when they have not been resized alike."""
        if len(task.partitions) == 1:
            return False
        lineages = {one.topic: self.consumer.lineage(one.topic) for one in task.partitions}
        reason = joined.mismatch(lineages, own=self._own)
        if reason is not None:
            raise StreamsError(reason)
        return None not in lineages.values()

    def read_to(self, task: Task) -> Reading | None:
        """The segment that all input of a task has come to; None where that is not known, or there is no order."""
        if self.joined(task):
            return joined.slowest([self._reading(one) for one in task.partitions])
        mine = self.consumer.assignment()
        return next((known for one in task.partitions if one in mine and (known := self.consumer.segment(one))), None)

    def arrived(self, task: Task) -> bool:
        """Whether everything has come that a resize sends to a task before it goes on from where it is."""
        known = self.read_to(task)
        if known is None:
            return not self.joined(task)
        return not any(state_handover.missing(*known, marks) for marks in task.marks())

    def holds_back(self, task: Task, partition: TopicPartition, generation: int) -> bool:
        """Whether a segment of one of several topics has to wait for the others, or for the state of its keys."""
        if not self.joined(task):
            return False
        known = self.read_to(task)
        if known is None or known[1].generation < generation:
            if (partition, generation) not in self._held:
                self._held.add((partition, generation))
                others = " and ".join(one.topic for one in task.partitions if one != partition)
                log.info(
                    "%s waits at generation %d for %s, to be resized and read as far", partition, generation, others
                )
            return True
        self._held.discard((partition, generation))
        segment = Segment(partition.partition, generation)
        return any(state_handover.missing(known[0], segment, marks) for marks in task.marks())

    def _reading(self, partition: TopicPartition) -> Reading | None:
        if partition in self.consumer.assignment() and self.is_there(partition):
            return self.consumer.segment(partition)
        lineage, present = self.consumer.lineage(partition.topic), self.consumer.partitions_of(partition.topic)
        return joined.removed(lineage, partition.partition, present) if lineage is not None and present else None
