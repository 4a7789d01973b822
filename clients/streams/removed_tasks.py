"""The tasks of removed partitions that one instance has to finish: their state still moves to other tasks.

A merge takes partitions away, and one that got no records is removed at once: maybe before its task has received the
state that comes to it, or has handed that on. Partitions that do not exist can be assigned to no member. So the leader
of the group gives such a task, without input, to the member that has the task to which the partition's keys went in the
end (its heir). That member restores the task from its changelog like any other, hands over what is due, and closes it.
In the format of Kafka Streams the leader sends it as a standby task without partitions.

The same state must never be handed over twice. The generation of the consumer group keeps two members apart that both
believe that a task is theirs:

    the leader gives a task away only when no member claims its partition; a member that has to give it up joins again
    the task is finished only in the generation of the group in which it was given, and the coordinator has to accept
    that generation: a commit of an earlier generation is refused, or was accepted before this generation began
    before the changelog's end is looked up, the group's offset of the partition is stable, so every transaction of an
    earlier owner is decided; an earlier finisher stores its records before its commit is judged. Both therefore lie
    below the end to which the changelog is read

When a later growth brings the partition back, its new owner finds in the changelog what was handed over.
"""

from __future__ import annotations

from collections.abc import Collection

from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.streams import joined, state_handover
from anabranch.clients.streams.joined import Reading
from anabranch.clients.streams.streams_partition_assignor import AssignedTasks
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_inputs import ConsumerView
from anabranch.clients.streams.tasks import Task
from anabranch.clients.streams.topology_graph import Built
from anabranch.protocol.lineage import KeyEpoch
from anabranch.protocol.topic_partition import TopicPartition


class RemovedTasks:
    """The tasks of removed partitions that this instance has to finish, and their progress."""

    def __init__(self, built: Built) -> None:
        self._built = built
        self._given: Collection[TaskId] = frozenset()
        self.generation = -1
        """The group's generation in which the tasks were assigned."""
        self._decided: set[TaskId] = set()
        """Tasks for which every transaction of earlier owners is decided."""
        self._finished: dict[TaskId, KeyEpoch] = {}

    def assign(self, assigned: AssignedTasks) -> None:
        """Adopt the tasks of a new generation; earlier owners' transactions are checked again."""
        self._given, self.generation = frozenset(assigned.removed), assigned.generation
        self._decided = set()

    def __contains__(self, task: TaskId) -> bool:
        return task in self._given

    def to_do(self, view: ConsumerView) -> set[TaskId]:
        """Return the tasks that are not known to be finished."""
        ends = {task: self.read_to(view, task) for task in self._given}
        return {task for task, end in ends.items() if end is None or self._finished.get(task) != end[1]}

    def is_decided(self, task: TaskId) -> bool:
        """Whether every transaction of the partition's earlier owners is decided."""
        return task in self._decided

    def undecided_partitions(self, tasks: Collection[Task]) -> list[TopicPartition]:
        """Return the partitions whose stable offset has to be queried."""
        pending = [one for one in tasks if one.id in self and one.id not in self._decided]
        return [partition for one in pending for partition in one.partitions]

    def note_stable(self, tasks: Collection[Task], stable: Collection[TopicPartition], generation: int) -> None:
        """Note that these partitions' offsets are stable, by a response to a request of this generation."""
        if generation == self.generation:
            self._decided |= {one.id for one in tasks if one.id in self and set(one.partitions) <= set(stable)}

    def member(self, view: ConsumerView) -> ConsumerGroupMetadata | None:
        """Return the member for which the tasks may be finished; None if the group's generation changed."""
        member = view.group_metadata()
        return member if member.generation_id == self.generation else None

    def read_to(self, view: ConsumerView, task: TaskId) -> Reading | None:
        """Return the last key epoch of a removed partition, with its lineage when the leader found it removed."""
        lineages = [view.assigned_lineage(topic) for topic in self._built.subtopologies[task.subtopology].sources]
        return joined.slowest(
            None if one is None else joined.removed_reading(one, task.partition, ()) for one in lineages
        )

    def is_finished(self, view: ConsumerView, task: Task) -> bool:
        """Whether all its state was handed over; if so, note that the task need not be opened again."""
        read_to = self.read_to(view, task.id)
        if read_to is None or state_handover.due(*read_to, min(marks.departed for marks in task.state_manager.marks())):
            return False
        self._finished[task.id] = read_to[1]
        return True
