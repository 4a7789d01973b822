"""Computes the progress of a task's input, and the key epochs that wait: for its other topics, or for their keys'
state.

A task reads the same partition of one or several topics. Everything is computed from a `ConsumerView` at that moment. A
stale lineage only makes a task wait longer; it never lets one proceed too early.
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
from anabranch.protocol.lineage import KeyEpoch, Lineage
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class ConsumerView(Protocol):
    """The state of an instance's consumer, as `Consumer` provides it: without waiting, valid at this moment."""

    @property
    def rebalancing(self) -> bool:
        """Whether the group rebalances: a commit may be refused."""

    def assignment(self) -> Collection[TopicPartition]:
        """Return the assigned partitions."""

    def position(self, partition: TopicPartition) -> int:
        """Return the next offset of an assigned partition; -1 while unknown."""

    def key_epoch(self, partition: TopicPartition) -> Reading | None:
        """Return the key epoch of an assigned partition's next records, with its topic's lineage; None in a topic
        without order, and without a position.
        """

    def lineage(self, topic: str) -> Lineage | None:
        """Return a topic's lineage; None in a topic without order."""

    def assigned_lineage(self, topic: str) -> Lineage | None:
        """Return a topic's lineage as of the current assignment."""

    def partitions_of(self, topic: str) -> Collection[int]:
        """Return a topic's partitions, including draining ones; empty while unknown."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the member and generation of the current assignment."""


class TaskInputs:
    """Evaluates the inputs of one application's tasks."""

    def __init__(self, built: Built) -> None:
        self._own = built.repartition_topics.keys()
        self._held: set[tuple[TopicPartition, int]] = set()
        """Logged key epochs that wait for another topic, so that each is logged once."""

    def present(self, view: ConsumerView, task: Task) -> list[TopicPartition]:
        """Return a task's assigned and existing input partitions: only those can have an offset committed."""
        mine = view.assignment()
        return [one for one in task.partitions if one in mine and exists(view, one)]

    def joins_topics(self, view: ConsumerView, task: Task) -> bool:
        """Whether a task joins several ordered topics. Raises StreamsError if they were not resized alike."""
        if len(task.partitions) == 1:
            return False
        lineages = {one.topic: view.lineage(one.topic) for one in task.partitions}
        reason = joined.mismatch(lineages, own=self._own)
        if reason is not None:
            raise StreamsError(reason)
        return None not in lineages.values()

    def read_to(self, view: ConsumerView, task: Task) -> Reading | None:
        """Return the key epoch that all inputs of a task have reached; None if unknown, or without order."""
        if self.joins_topics(view, task):
            return joined.slowest([_reading(view, one) for one in task.partitions])
        mine = view.assignment()
        return next((known for one in task.partitions if one in mine and (known := view.key_epoch(one))), None)

    def has_arrived(self, view: ConsumerView, task: Task) -> bool:
        """Whether all state that a resize moves to a task before its next key epoch has arrived."""
        known = self.read_to(view, task)
        if known is None:
            return not self.joins_topics(view, task)
        return not any(state_handover.missing(*known, marks) for marks in task.state_manager.marks())

    def holds_back(self, view: ConsumerView, task: Task, partition: TopicPartition, generation: int) -> bool:
        """Whether a key epoch of one of several topics has to wait for the others, or for its keys' state."""
        if not self.joins_topics(view, task):
            return False
        known = self.read_to(view, task)
        if known is None or known[1].generation < generation:
            if (partition, generation) not in self._held:
                self._held.add((partition, generation))
                others = " and ".join(one.topic for one in task.partitions if one != partition)
                log.info(
                    "%s at generation %d waits until %s is resized and read to the same point",
                    partition,
                    generation,
                    others,
                )
            return True
        self._held.discard((partition, generation))
        key_epoch = KeyEpoch(partition.partition, generation)
        return any(state_handover.missing(known[0], key_epoch, marks) for marks in task.state_manager.marks())


def exists(view: ConsumerView, partition: TopicPartition) -> bool:
    """Whether a partition is not known to be removed."""
    present = view.partitions_of(partition.topic)
    return not present or partition.partition in present


def _reading(view: ConsumerView, partition: TopicPartition) -> Reading | None:
    if partition in view.assignment() and exists(view, partition):
        return view.key_epoch(partition)
    lineage, present = view.lineage(partition.topic), view.partitions_of(partition.topic)
    return joined.removed_reading(lineage, partition.partition, present) if lineage is not None and present else None
