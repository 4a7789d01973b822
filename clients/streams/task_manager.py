"""The tasks of one instance: which there are, what they did when it is committed, and what moves between them.

Whatever changes the set of tasks comes through the consumer's listener, inside the call that asks for records, and
commits first. What a commit refuses has not happened: the tasks forget what is in memory, catch up, and the input is
sought back.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection

from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener
from anabranch.clients.streams import state_handover
from anabranch.clients.streams.assignment_info import AssignorError
from anabranch.clients.streams.committer import LOST_MEMBERSHIP, Committer, Departure, TasksMigrated
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.failures import Failures
from anabranch.clients.streams.inputs import Inputs, StreamsError
from anabranch.clients.streams.joined import Reading
from anabranch.clients.streams.removed_tasks import RemovedTasks
from anabranch.clients.streams.restorer import Restorer
from anabranch.clients.streams.state_directory import StateDirectory
from anabranch.clients.streams.streams_partition_assignor import AssignedTasks
from anabranch.clients.streams.subscription_info import RUNNING
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.tasks import State, Task
from anabranch.clients.streams.topology import Built
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.lineage import Segment
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class TaskManager(PartitionKeyRebalanceListener):
    """See the module. What it needs of others is given before it is used: they need it too."""

    consumer: Consumer
    committer: Committer
    restorer: Restorer

    def __init__(self, config: StreamsConfig, built: Built, directory: StateDirectory) -> None:
        self._config = config
        self._built = built
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self.tasks: dict[TaskId, Task] = {}
        self._assigned = AssignedTasks()
        self.removed = RemovedTasks(built)
        self.inputs = Inputs(built)
        self._suspended: set[TaskId] = set()
        """Tasks that ran until an eager rebalance began."""
        self._expected: set[TaskId] = set()
        """Running tasks to which keys are about to come, and which have changes to commit first."""
        self._offsets: dict[TopicPartition, int] = {}
        """What was committed last, or where reading began."""
        self.failures = Failures(
            deserialization_handler=config.deserialization_handler,
            processing_handler=config.processing_handler,
            dead_letter_topic=config.errors_dead_letter_queue_topic_name,
        )
        self._given_up = False
        self._committing = False
        self._put_off = False
        """Whether a commit waits for the end of a rebalance."""
        self._committed_at = self._loop.time()
        self.commit_due = self._loop.time()
        self._parked = {task: sum(self._checkpoints(task).values()) for task in directory.tasks() if self._known(task)}
        """Tasks that left state here and are not open: the sums of their checkpoints."""

    # what the consumer tells of (PartitionKeyRebalanceListener)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit, and stop processing these."""
        await self.commit()
        self._give_back(partitions, lost=False)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing can be committed any more."""
        await self.committer.drop()
        self._give_back(partitions, lost=True)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Take up what was assigned; the assignor has told of the tasks. A commit that waited for this may go."""
        self._take_tasks()
        if self._put_off:
            await self.commit()

    async def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Hand over what leaves here: nobody is to wait for the next commit."""
        await self.commit()

    async def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Keys are about to come to these partitions: their tasks see to it that the state is there, after a commit.

        Which may have to wait for the end of a rebalance; until then nothing of them is processed.
        """
        self._expect_arrivals()
        await self.commit()
        self._catch_up_expected()

    def holds_back(self, partition: TopicPartition, generation: int) -> bool:
        """Where topics are joined, one that was resized first waits for the others."""
        task = self.tasks.get(self._task_id(partition))
        return task is not None and self.inputs.holds_back(task, partition, generation)

    # committing

    async def commit(self) -> None:
        """Commit everything that was processed, and hand over what has left.

        While the group rebalances that may be refused, and is put off; a transaction for a while only, for the group
        may wait for a dead member for longer than it may take.
        """
        # Offsets that reach a cut have the consumer ask for a flush: this is the commit that does it.
        if self._given_up or self._committing:
            return
        now, interval_s = self._loop.time(), self._config.commit_interval_ms / 1000
        patience_s = self._config.transaction_timeout_ms / 2000 if self._config.exactly_once else math.inf
        self._put_off = self.consumer.rebalancing and now < self._committed_at + patience_s
        if self._put_off:
            self.commit_due = min(now + interval_s, self._committed_at + patience_s)
            return
        self._close_finished()
        self._expect_arrivals()
        departures, member = self._departures(), None
        leaving = {departure.task.id for departure in departures}
        if any(task in self.removed for task in leaving):
            member = self.removed.member()
            leaving |= self._witness()
        tasks = [task for task in self.tasks.values() if task.state is State.RUNNING or task.id in leaving]
        offsets = self._progressed(tasks, leaving)
        self._committed_at = self._loop.time()
        self.commit_due = self._committed_at + interval_s
        if not (offsets or departures or self.committer.open or any(task.changed for task in tasks)):
            self._catch_up_expected()
            return
        self._committing = True
        try:
            async with self.restorer.idle:
                deliveries = await self.committer.commit(tasks, offsets, departures, member)
                self._offsets.update(offsets)
                self.committer.moves.copied += self.restorer.copied(deliveries)
        finally:
            self._committing = False
        if deliveries:
            self.commit_due = self._loop.time()  # there may be more than one transaction takes
            self.restorer.follow()
        self._catch_up_expected()

    def _progressed(self, tasks: Collection[Task], leaving: Collection[TaskId]) -> dict[TopicPartition, int]:
        """The positions that are not committed yet; of tasks that hand over all, for the group has to agree to that.

        Of several topics all, too: whoever has the task next looks at what is there then, and one may be removed.
        """
        positions = {one: self.consumer.position(one) for task in tasks for one in self.inputs.are_there(task)}
        several = {task.id for task in tasks if len(task.partitions) > 1 and task.changed}
        agreed = {one for task in tasks if task.id in several.union(leaving) for one in task.partitions}
        return {one: at for one, at in positions.items() if at >= 0 and (at != self._offsets.get(one) or one in agreed)}

    def task_of(self, partition: TopicPartition) -> Task:
        """The task that reads a partition here."""
        return self.tasks[self._task_id(partition)]

    def _task_id(self, partition: TopicPartition) -> TaskId:
        return TaskId(self._built.subtopology_of(partition.topic).index, partition.partition)

    async def recover(self, error: TasksMigrated) -> None:
        """Nothing since the last commit has happened: forget it, and read the input again from there."""
        log.warning("going back to the last commit: %s", error)
        for task in self.tasks.values():
            if task.state is not State.STANDBY:  # one that was about to hand over has marks that do not count
                task.aborted()
                self._pause(task)
        for partition in self.consumer.assignment():
            try:
                at = await self.consumer.committed(partition)
            except KafkaError as refused:
                if refused.code not in LOST_MEMBERSHIP:
                    raise
                continue  # whoever is assigned next begins where the group is
            known = self._offsets.get(partition) if at is None else at
            if known is not None and partition in self.consumer.assignment():
                self.consumer.seek(partition, known)
        self.restorer.follow()

    # resizes

    def _departures(self) -> list[Departure]:
        """The hand-overs that are due, of tasks whose state is complete up to the cut."""
        found: list[Departure] = []
        for task in self.tasks.values():
            if not task.stores or not _complete(task):
                continue
            marks = task.marks()
            read_to = self._read_to(task)
            if read_to is None:
                continue
            lineage, segment = read_to
            for generation in state_handover.due(lineage, segment, min(one.departed for one in marks)):
                opened = Segment(task.id.partition, generation)
                before = lineage.previous(opened)
                assert before is not None, "keys leave where a segment ends"
                if any(state_handover.missing(lineage, before, one) for one in marks):
                    break
                found.append(Departure(task, lineage, opened))
        return found

    def _read_to(self, task: Task) -> Reading | None:
        """The segment that a task's input is in; a removed partition's last one, if its task may be finished now."""
        if task.id in self.removed:
            return self.removed.read_to(task.id) if self.removed.member() and self._witness() else None
        return self.inputs.read_to(task) if self.inputs.are_there(task) else None

    def _witness(self) -> set[TaskId]:
        """A task, if there is one, whose offset can be committed once more, so that the group is asked to agree."""
        for task in self.tasks.values():
            if _complete(task) and any(self.consumer.position(one) >= 0 for one in self.inputs.are_there(task)):
                return {task.id}
        return set()

    def _close_finished(self) -> None:
        """Tasks of removed partitions end when everything is passed on."""
        given = [task for task in self.tasks.values() if task.id in self.removed]
        for task in given:
            if task.restored and self.removed.finished(task):
                log.info("%s is finished: its partition is gone", task.id)
                self._close(task.id)
                self.restorer.follow()

    def arrived(self, task: Task) -> bool:
        """Whether a task reads something, and everything has come that a resize sends to it before."""
        return task.id not in self.removed and self.inputs.arrived(task)

    # tasks

    def positions_known(self, task: Task) -> bool:
        """Whether the input is ready, and with it everything decided that the owner before had begun."""
        if task.id in self.removed:
            return self.removed.decided(task.id)
        mine = self.consumer.assignment()
        there = [one for one in task.partitions if one in mine]
        known = bool(there) and all(self.consumer.position(one) >= 0 for one in there)
        if known:
            for one in there:
                self._offsets.setdefault(one, self.consumer.position(one))
        return known

    async def look(self) -> None:
        """Ask the group for what no position tells."""
        await self.removed.look(self.tasks.values())

    def begin(self, task: Task) -> None:
        """Let a task process: everything is there."""
        task.run()
        self.consumer.resume(*(one for one in task.partitions if one in self.consumer.assignment()))
        log.info("%s runs, with %d keys", task.id, sum(task.disk.entries(name) for name in task.stores))

    def _pause(self, task: Task) -> None:
        mine = self.consumer.assignment()
        self.consumer.pause(*(one for one in task.partitions if one in mine))

    def offset_sums(self) -> dict[TaskId, int]:
        """What this instance has of each task with state, for whoever assigns."""
        sums = dict(self._parked)
        for task in self.tasks.values():
            if not task.stores:
                continue
            running = task.state is State.RUNNING or task.id in self._suspended
            sums[task.id] = RUNNING if running else sum(one.checkpoint.offset for one in task.stores.values())
        return sums

    def on_tasks(self, assigned: AssignedTasks) -> None:
        """What the leader gave, or why it gave nothing: then the instance ends. `StreamsError`"""
        if assigned.error is not AssignorError.NONE:
            raise StreamsError(f"the leader of the group has no assignment: {assigned.error.name}")
        self._assigned = assigned
        self.removed.assign(assigned)

    def _take_tasks(self) -> None:
        """Have exactly the tasks that were assigned: those that run go on, new ones catch up, others are closed."""
        self._suspended.clear()
        active, removed = set(self._assigned.active), self.removed.to_do()
        standby = {task for task in self._assigned.standby if task not in active}
        for task_id in self.tasks.keys() - active - standby - removed:
            self._close(task_id)
        for task_id in sorted(active | standby | removed):
            wanted = State.STANDBY if task_id in standby else State.CATCHING_UP
            task_or_none = self.tasks.get(task_id)
            if task_or_none is None:
                self.tasks[task_id] = self._open(task_id, wanted)
            elif wanted is State.STANDBY:
                task_or_none.stand_by()
            elif task_or_none.state is State.STANDBY or task_id in removed:
                task_or_none.catch_up()
        for task_id in active:
            if self.tasks[task_id].state is not State.RUNNING:
                self._pause(self.tasks[task_id])
        self.restorer.follow()

    def task(self, task_id: TaskId) -> Task:
        """A task; one that is not here becomes a standby until tasks are assigned again."""
        task = self.tasks.get(task_id)
        if task is None:
            task = self.tasks[task_id] = self._open(task_id, State.STANDBY)
        return task

    def _close(self, task_id: TaskId) -> None:
        task = self.tasks.pop(task_id)
        self._parked[task_id] = sum(one.checkpoint.offset for one in task.stores.values())
        task.close()

    def _open(self, task_id: TaskId, state: State) -> Task:
        self._parked.pop(task_id, None)
        subtopology = self._built.subtopologies[task_id.subtopology]
        disk = self._directory.open(task_id, subtopology.stores)
        return Task(task_id, self._config.application_id, subtopology, disk, state=state, failures=self.failures)

    def _give_back(self, partitions: Collection[TopicPartition], *, lost: bool) -> None:
        """The tasks of these partitions run here no more; their stores are kept warm until it is known who has them."""
        for partition in partitions:
            task = self.tasks.get(self._task_id(partition))
            self._offsets.pop(partition, None)
            if task is None:
                continue
            if lost:
                task.aborted()
            elif self._config.rebalance_protocol == "eager" and task.state is State.RUNNING:
                self._suspended.add(task.id)
            task.stand_by()
        self.restorer.follow()

    def _expect_arrivals(self) -> None:
        """Tasks to which keys are about to come process nothing more. Nobody tells of a segment without records."""
        for task in self.tasks.values():
            if task.state is State.RUNNING and task.stores and not self.arrived(task):
                self._pause(task)
                self._expected.add(task.id)

    def _catch_up_expected(self) -> None:
        tasks = [self.tasks[task] for task in self._expected & self.tasks.keys()]
        for task in tasks:
            if task.state is not State.RUNNING:
                self._expected.discard(task.id)
            elif not task.changed:
                self._expected.discard(task.id)
                task.catch_up()
                self.restorer.follow()

    def give_up(self) -> None:
        """Commit nothing more: what is in memory is void."""
        self._given_up = True
        for task in self.tasks.values():
            task.aborted()

    def close(self) -> None:
        """Leave the stores on disk, as of the last commit."""
        for task in self.tasks.values():
            task.close()
        self.tasks.clear()

    def _known(self, task: TaskId) -> bool:
        return task.subtopology < len(self._built.subtopologies)

    def _checkpoints(self, task: TaskId) -> dict[str, int]:
        return self._directory.checkpoints(task, self._built.subtopologies[task.subtopology].stores)


def _complete(task: Task) -> bool:
    """Whether a task's stores hold all that was committed up to its position."""
    return task.state is State.RUNNING or (task.state is State.CATCHING_UP and task.restored)
