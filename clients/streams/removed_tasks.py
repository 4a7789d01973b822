"""The tasks of removed partitions that one instance has to finish: their state still has to go to other tasks.

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
from anabranch.protocol.lineage import Segment
from anabranch.protocol.topic_partition import TopicPartition


class RemovedTasks:
    """Which tasks of removed partitions this instance has to finish, and what is known of each."""

    def __init__(self, built: Built) -> None:
        self._built = built
        self._given: Collection[TaskId] = frozenset()
        self.generation = -1
        """The generation of the group in which the tasks were given."""
        self._decided: set[TaskId] = set()
        """Tasks for which every transaction of earlier owners is decided."""
        self._finished: dict[TaskId, Segment] = {}

    def assign(self, assigned: AssignedTasks) -> None:
        """Take the tasks of a new generation of the group; whether earlier owners are done is asked again."""
        self._given, self.generation = frozenset(assigned.removed), assigned.generation
        self._decided = set()

    def __contains__(self, task: TaskId) -> bool:
        return task in self._given

    def to_do(self, view: ConsumerView) -> set[TaskId]:
        """The tasks that are not known to be finished."""
        ends = {task: self.read_to(view, task) for task in self._given}
        return {task for task, end in ends.items() if end is None or self._finished.get(task) != end[1]}

    def decided(self, task: TaskId) -> bool:
        """Whether every transaction is decided that earlier owners of the partition had begun."""
        return task in self._decided

    def undecided(self, tasks: Collection[Task]) -> list[TopicPartition]:
        """The partitions for which the group has to be asked whether their offset is stable."""
        asked = [one for one in tasks if one.id in self and one.id not in self._decided]
        return [partition for one in asked for partition in one.partitions]

    def note_stable(self, tasks: Collection[Task], stable: Collection[TopicPartition], generation: int) -> None:
        """The group has answered, to a question of this generation, that these partitions' offsets are stable."""
        if generation == self.generation:
            self._decided |= {one.id for one in tasks if one.id in self and set(one.partitions) <= set(stable)}

    def member(self, view: ConsumerView) -> ConsumerGroupMetadata | None:
        """The member as which the tasks may be finished; None if the group has gone on to another generation."""
        member = view.group_metadata()
        return member if member.generation_id == self.generation else None

    def read_to(self, view: ConsumerView, task: TaskId) -> Reading | None:
        """The last segment of a removed partition, with the lineage that its topic had when the leader found it
        gone."""
        lineages = [view.assigned_lineage(topic) for topic in self._built.subtopologies[task.subtopology].sources]
        return joined.slowest(None if one is None else joined.removed(one, task.partition, ()) for one in lineages)

    def finished(self, view: ConsumerView, task: Task) -> bool:
        """Whether all its state was handed over; then it is noted that the task need not be opened again."""
        read_to = self.read_to(view, task.id)
        if read_to is None or state_handover.due(*read_to, min(marks.departed for marks in task.marks())):
            return False
        self._finished[task.id] = read_to[1]
        return True
