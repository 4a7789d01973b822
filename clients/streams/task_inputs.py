"""How far the input of a task is read, and which segments have to wait: for its other topics, or for their keys' state.

A task reads the same partition of one or several topics. Everything here is a question to a `ConsumerView`, answered
from what the consumer knows at that moment. A lineage that is known here later than elsewhere makes a task wait longer;
it never lets one go ahead.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.streams import joined, state_handover
from anabranch.clients.streams.joined import Reading
from anabranch.clients.streams.streams_errors import StreamsError
from anabranch.clients.streams.tasks import Task
from anabranch.clients.streams.topology_graph import Built
from anabranch.protocol.lineage import Lineage, Segment
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class ConsumerView(Protocol):
    """What the consumer of an instance knows, as `Consumer` tells it: asked without waiting, true for this moment."""

    @property
    def rebalancing(self) -> bool:
        """Whether the group rebalances: a commit may be refused."""

    def assignment(self) -> Collection[TopicPartition]:
        """The partitions that are read here."""

    def position(self, partition: TopicPartition) -> int:
        """The next offset of an assigned partition; -1 while it is not known."""

    def segment(self, partition: TopicPartition) -> Reading | None:
        """The segment of an assigned partition whose records come next, with the lineage of its topic; None in a topic
        without order, and while there is no position."""

    def lineage(self, topic: str) -> Lineage | None:
        """What resizes have done to a topic; None in a topic without order."""

    def assigned_lineage(self, topic: str) -> Lineage | None:
        """What resizes had done to a topic when the leader of the group made the present assignment."""

    def partitions_of(self, topic: str) -> Collection[int]:
        """The partitions of a topic, those included that are removed when they are empty; empty while unknown."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The member and generation for which the partitions are assigned here."""


class TaskInputs:
    """Answers what the input of one application's tasks allows."""

    def __init__(self, built: Built) -> None:
        self._own = built.repartition_topics.keys()
        self._held: set[tuple[TopicPartition, int]] = set()
        """The segments that wait for another topic and were logged, so that each is logged once."""

    def present(self, view: ConsumerView, task: Task) -> list[TopicPartition]:
        """The input partitions of a task that are assigned here and still exist: only for them an offset can be
        committed."""
        mine = view.assignment()
        return [one for one in task.partitions if one in mine and exists(view, one)]

    def joined(self, view: ConsumerView, task: Task) -> bool:
        """Whether several topics with order meet in a task. StreamsError when they have not been resized alike."""
        if len(task.partitions) == 1:
            return False
        lineages = {one.topic: view.lineage(one.topic) for one in task.partitions}
        reason = joined.mismatch(lineages, own=self._own)
        if reason is not None:
            raise StreamsError(reason)
        return None not in lineages.values()

    def read_to(self, view: ConsumerView, task: Task) -> Reading | None:
        """The segment that all input of a task has come to; None where that is not known, or there is no order."""
        if self.joined(view, task):
            return joined.slowest([_reading(view, one) for one in task.partitions])
        mine = view.assignment()
        return next((known for one in task.partitions if one in mine and (known := view.segment(one))), None)

    def arrived(self, view: ConsumerView, task: Task) -> bool:
        """Whether all state has come that a resize sends to a task before the segment it reads next."""
        known = self.read_to(view, task)
        if known is None:
            return not self.joined(view, task)
        return not any(state_handover.missing(*known, marks) for marks in task.marks())

    def holds_back(self, view: ConsumerView, task: Task, partition: TopicPartition, generation: int) -> bool:
        """Whether a segment of one of several topics has to wait for the others, or for the state of its keys."""
        if not self.joined(view, task):
            return False
        known = self.read_to(view, task)
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


def exists(view: ConsumerView, partition: TopicPartition) -> bool:
    """Whether a partition was not removed, as far as is known."""
    present = view.partitions_of(partition.topic)
    return not present or partition.partition in present


def _reading(view: ConsumerView, partition: TopicPartition) -> Reading | None:
    if partition in view.assignment() and exists(view, partition):
        return view.segment(partition)
    lineage, present = view.lineage(partition.topic), view.partitions_of(partition.topic)
    return joined.removed(lineage, partition.partition, present) if lineage is not None and present else None
