"""Tasks outlive their partitions: what was merged away, drained and removed has still to hand its state on.

A partition that got no records is removed as soon as it is merged, maybe before its task has been handed what comes to
it, or has handed that on. Nobody can be assigned such a partition; so the leader of the group gives its task, without
input, to whoever has the task that its keys went to in the end. That one restores it from its changelog like any other
task, passes on what is due, and closes it. In the format of Kafka Streams it is a standby task without partitions.

Two must never hand over the same state. An owner of the partition, and whoever has its task now, exclude each other by
the generation of the group:

    the leader gives the task to nobody while somebody claims the partition: who has to give it up joins again
    the task is finished only in the very generation of the group in which it was given, and the group has to agree:
    what others began in earlier generations is refused, or was agreed to before this one began
    what owners had begun is decided when the group's offset of the partition is; what an earlier finisher had begun
    stands in the changelogs, because it is stored before the group is asked: both lie below where the changelog ends

A partition that comes back has an owner like any other, who finds in its changelog what was passed on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from anabranch.clients.streams import joined, state_handover
from anabranch.clients.streams.joined import Reading
from anabranch.clients.streams.task_id import TaskId
from anabranch.protocol.lineage import Segment

if TYPE_CHECKING:
    from anabranch.clients.consumer.consumer import Consumer
    from anabranch.clients.group_metadata import ConsumerGroupMetadata
    from anabranch.clients.streams.streams_partition_assignor import AssignedTasks
    from anabranch.clients.streams.tasks import Task
    from anabranch.clients.streams.topology import Built


class RemovedTasks:
    """Those that one instance was given."""

    consumer: Consumer

    def __init__(self, built: Built) -> None:
        self._built = built
        self._given: Collection[TaskId] = frozenset()
        self._generation = -1
        self._decided: set[TaskId] = set()
        """Those of which no owner before has anything undecided."""
        self._finished: dict[TaskId, Segment] = {}

    def assign(self, assigned: AssignedTasks) -> None:
        """A new generation of the group: what was known of owners before is asked again."""
        self._given, self._generation = frozenset(assigned.removed), assigned.generation
        self._decided = set()

    def __contains__(self, task: TaskId) -> bool:
        return task in self._given

    def to_do(self) -> set[TaskId]:
        """Those that are not known to be finished."""
        ends = {task: self.read_to(task) for task in self._given}
        return {task for task, end in ends.items() if end is None or self._finished.get(task) != end[1]}

    def decided(self, task: TaskId) -> bool:
        """Whether everything is decided that owners of the partition had begun."""
        return task in self._decided

    async def look(self, tasks: Collection[Task]) -> None:
        """Ask the group where that is not known yet."""
        asked = [one for one in tasks if one.id in self and one.id not in self._decided]
        generation = self._generation
        if asked:
            stable = await self.consumer.stable([partition for one in asked for partition in one.partitions])
            if generation == self._generation:
                self._decided |= {one.id for one in asked if set(one.partitions) <= set(stable)}

    def member(self) -> ConsumerGroupMetadata | None:
        """As whom the tasks may be finished; None if the group has gone on to another generation."""
        member = self.consumer.group_metadata()
        return member if member.generation_id == self._generation else None

    def read_to(self, task: TaskId) -> Reading | None:
        """What a removed partition ended with, and the lineage of its topic, when the leader found it gone."""
        lineages = [
            self.consumer.assigned_lineage(topic) for topic in self._built.subtopologies[task.subtopology].sources
        ]
        return joined.slowest(None if one is None else joined.removed(one, task.partition, ()) for one in lineages)

    def finished(self, task: Task) -> bool:
        """Whether everything was passed on; it need not be opened again then."""
        read_to = self.read_to(task.id)
        if read_to is None or state_handover.due(*read_to, min(marks.departed for marks in task.marks())):
            return False
        self._finished[task.id] = read_to[1]
        return True
