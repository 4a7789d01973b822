"""The offsets of an instance's input: what is committed of each partition, and what a commit has to add.

A partition is known by its last committed offset here, or by the position at which it began. Source: StreamTask's
committed offsets of Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_inputs import ConsumerView, TaskInputs
from anabranch.clients.streams.tasks import Task
from anabranch.protocol.topic_partition import TopicPartition


class InputOffsets:
    """The last committed offset of each input partition, or the position at which it began."""

    def __init__(self, inputs: TaskInputs) -> None:
        self._inputs = inputs
        self._committed: dict[TopicPartition, int] = {}

    def begin(self, view: ConsumerView, partitions: Collection[TopicPartition]) -> bool:
        """Note where partitions begin, if all have positions; return whether they have, and there is one."""
        known = bool(partitions) and all(view.position(one) >= 0 for one in partitions)
        if known:
            for one in partitions:
                self._committed.setdefault(one, view.position(one))
        return known

    def forget(self, partition: TopicPartition) -> None:
        """Forget a partition that is given back."""
        self._committed.pop(partition, None)

    def on_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note committed offsets."""
        self._committed.update(offsets)

    def last_committed(self, partition: TopicPartition) -> int | None:
        """Return the last committed offset of a partition; None if it was never read here."""
        return self._committed.get(partition)

    def uncommitted(
        self, view: ConsumerView, tasks: Collection[Task], leaving: Collection[TaskId]
    ) -> dict[TopicPartition, int]:
        """Return uncommitted positions; all of tasks that hand over or called timers, because the group has to confirm
        those: without offsets, nothing refuses the work of a task's former owner.

        This includes all topics of a task: its next owner uses the existing ones, and one may be removed.
        """
        positions = {one: view.position(one) for task in tasks for one in self._inputs.present(view, task)}
        several = {task.id for task in tasks if len(task.partitions) > 1 and task.state_manager.changed}
        fired = {task.id for task in tasks if task.fired}
        agreed = {one for task in tasks if task.id in several.union(leaving, fired) for one in task.partitions}
        committed = self._committed
        return {one: at for one, at in positions.items() if at >= 0 and (at != committed.get(one) or one in agreed)}
