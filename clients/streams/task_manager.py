"""The shell of `TaskMachine` for the consumer: its callbacks, commits, and recovery from failed ones.

The consumer's callbacks change the set of tasks, inside the call that asks for records, and commit first. When a commit
is refused, everything since the previous one is void: the tasks drop their memory, catch up, and the input is read
again from the last committed offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.clients.streams.committer import LOST_MEMBERSHIP, Committer
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.context import ReadOnlyStore
from anabranch.clients.streams.failures import Failures
from anabranch.clients.streams.state_directory import StateDirectory
from anabranch.clients.streams.streams_errors import TasksMigrated
from anabranch.clients.streams.task_effects import Follow
from anabranch.clients.streams.task_machine import TaskMachine
from anabranch.clients.streams.task_runner import TaskRunner
from anabranch.clients.streams.topology_graph import Built
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)


class TaskManager(PartitionKeyRebalanceListener):
    """Runs the machine on the consumer's news and due commits, and executes its effects."""

    def __init__(
        self,
        config: StreamsConfig,
        built: Built,
        machine: TaskMachine,
        directory: StateDirectory,
        reader: ChangelogReader,
        wakeup: asyncio.Event,
        make_consumer: Callable[[PartitionKeyRebalanceListener], Consumer],
        make_committer: Callable[[Consumer], Committer],
        global_stores: Mapping[str, ReadOnlyStore],
    ) -> None:
        """Create a manager; `make_consumer` gets this object as the consumer's listener; `wakeup` is set when there may
        be something to restore.
        """
        self.machine = machine
        self.failures = Failures(
            deserialization_handler=config.deserialization_handler,
            processing_handler=config.processing_handler,
            dead_letter_topic=config.errors_dead_letter_queue_topic_name,
        )
        self._loop = asyncio.get_running_loop()
        self._wakeup = wakeup
        self.consumer = make_consumer(self)
        self.committer = make_committer(self.consumer)
        self.runner = TaskRunner(
            config.application_id,
            built,
            machine,
            directory,
            self.consumer,
            reader,
            self.failures,
            wakeup,
            global_stores,
        )

    # callbacks of the consumer (PartitionKeyRebalanceListener)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit, and stop processing these."""
        await self.commit()
        self.runner.carry_out(self.machine.give_back(partitions, lost=False))

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Stop processing these; nothing of them can be committed any more.

        Raises `TasksMigrated` if others stay, whose output was dropped, too.
        """
        was_open = self.committer.open
        await self.committer.drop()
        self.runner.carry_out(self.machine.give_back(partitions, lost=True))
        if was_open and self.consumer.assignment() - set(partitions):
            raise TasksMigrated("the transaction had output of partitions that are lost")

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Adopt the assigned tasks. A commit that waited for the end of the rebalance may run."""
        self.runner.carry_out(self.machine.take_tasks(self.consumer))
        if self.machine.commit_schedule.put_off:
            await self.commit()

    async def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Hand over leaving keys now, so that other tasks need not wait for the next commit."""
        await self.commit()

    async def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Prepare for keys that move to these partitions: their tasks commit, then wait for the keys' state.

        A rebalance may delay the commit to its end; until then nothing of these partitions is processed.
        """
        self.runner.carry_out(self.machine.expect_arrivals(self.consumer))
        await self.commit()
        self.runner.carry_out(self.machine.catch_up_expected())

    def holds_back(self, partition: TopicPartition, generation: int) -> bool:
        """Whether a key epoch of one topic has to wait for topics that it is joined with."""
        return self.machine.holds_back(self.consumer, partition, generation)

    def read_together(self, partition: TopicPartition) -> Sequence[TopicPartition]:
        """Return the partitions of a task of several topics: their records are processed in the order of time."""
        return self.machine.read_together(self.consumer, partition)

    # commits

    async def commit(self) -> None:
        """Commit all processed records and due hand-overs, if that is allowed now. Raises `TasksMigrated`."""
        machine, now = self.machine, self._loop.time()
        if not machine.may_commit(self.consumer, now):
            return
        self.runner.carry_out(machine.before_commit(self.consumer))
        commit = machine.commit(self.consumer, now, sent=self.committer.open)
        if commit is not None:
            try:
                deliveries = await self.committer.commit(commit)
            except BaseException:
                machine.commit_failed()
                raise
            finally:
                self._wakeup.set()  # nothing was restored meanwhile
            effects = machine.on_committed(commit, self._loop.time(), handed_over=bool(deliveries))
            self.committer.moves.copied += self.runner.copy(deliveries)
            self.runner.carry_out(effects)
            # A changelog may have been created again meanwhile: its tasks process nothing before they have read it.
            self.runner.carry_out(machine.expect_arrivals(self.consumer))
        self.runner.carry_out(machine.catch_up_expected())

    async def recover(self, error: Exception) -> None:
        """Undo everything since the last commit, and read the input again from there."""
        log.warning("resetting to the last commit: %s", error)
        self.runner.carry_out(self.machine.on_aborted(self.consumer))
        for partition in self.consumer.assignment():
            try:
                stored = await self.consumer.committed(partition)
            except KafkaError as refused:
                if refused.code not in LOST_MEMBERSHIP:
                    raise
                continue  # its next owner starts at the group's offset
            offset = self.machine.last_committed(partition, stored)
            if offset is not None and partition in self.consumer.assignment():
                self.consumer.seek(partition, offset)
        self.runner.carry_out([Follow()])

    # shutdown

    def give_up(self) -> None:
        """Stop committing: uncommitted work is void."""
        self.machine.give_up()

    def close(self) -> None:
        """Close the stores, as of the last commit."""
        for task in self.machine.tasks.values():
            task.close()
        self.machine.tasks.clear()
