"""The shell around `TaskMachine` on the side of the consumer: its callbacks, commits, and what follows a failed one.

Whatever changes the set of tasks comes through the consumer's callbacks, inside the call that asks for records, and
commits first. When a commit is refused, nothing since the one before has happened: the tasks forget what is in memory,
catch up, and the input is read again from the last committed offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.clients.streams.committer import LOST_MEMBERSHIP, Committer
from anabranch.clients.streams.config import StreamsConfig
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
    """Has the machine decide whenever the consumer has news or a commit is due, and waits for what that takes."""

    def __init__(
        self,
        config: StreamsConfig,
        built: Built,
        machine: TaskMachine,
        directory: StateDirectory,
        reader: ChangelogReader,
        news: asyncio.Event,
        make_consumer: Callable[[PartitionKeyRebalanceListener], Consumer],
        make_committer: Callable[[Consumer], Committer],
    ) -> None:
        """`make_consumer` is given this object as the consumer's listener; `news` is set when there may be something to
        restore."""
        self.machine = machine
        self.failures = Failures(
            deserialization_handler=config.deserialization_handler,
            processing_handler=config.processing_handler,
            dead_letter_topic=config.errors_dead_letter_queue_topic_name,
        )
        self._loop = asyncio.get_running_loop()
        self._news = news
        self.consumer = make_consumer(self)
        self.committer = make_committer(self.consumer)
        self.runner = TaskRunner(
            config.application_id, built, machine, directory, self.consumer, reader, self.failures, news
        )

    # the consumer's callbacks (PartitionKeyRebalanceListener)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit, and stop processing these."""
        await self.commit()
        self.runner.carry_out(self.machine.give_back(partitions, lost=False))

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Stop processing these; nothing of them can be committed any more."""
        await self.committer.drop()
        self.runner.carry_out(self.machine.give_back(partitions, lost=True))

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Take up the tasks that were assigned. A commit that waited for the end of the rebalance may go."""
        self.runner.carry_out(self.machine.take_tasks(self.consumer))
        if self.machine.put_off:
            await self.commit()

    async def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Hand over what leaves here now, so that other tasks need not wait for the next commit."""
        await self.commit()

    async def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Keys are about to come to these partitions: their tasks wait for the keys' state, after a commit.

        The commit may be put off to the end of a rebalance; until then nothing of these partitions is processed.
        """
        self.runner.carry_out(self.machine.expect_arrivals(self.consumer))
        await self.commit()
        self.runner.carry_out(self.machine.catch_up_expected())

    def holds_back(self, partition: TopicPartition, generation: int) -> bool:
        """Whether a segment of one topic has to wait for topics that it is joined with."""
        return self.machine.holds_back(self.consumer, partition, generation)

    # commits

    async def commit(self) -> None:
        """Commit everything that was processed and hand over what is due, if that may be done now. `TasksMigrated`"""
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
                self._news.set()  # nothing was restored meanwhile
            effects = machine.committed(commit, self._loop.time(), handed_over=bool(deliveries))
            self.committer.moves.copied += self.runner.copy(deliveries)
            self.runner.carry_out(effects)
        self.runner.carry_out(machine.catch_up_expected())

    async def recover(self, error: TasksMigrated) -> None:
        """Nothing since the last commit has happened: forget it, and read the input again from there."""
        log.warning("going back to the last commit: %s", error)
        self.runner.carry_out(self.machine.aborted(self.consumer))
        for partition in self.consumer.assignment():
            try:
                stored = await self.consumer.committed(partition)
            except KafkaError as refused:
                if refused.code not in LOST_MEMBERSHIP:
                    raise
                continue  # its next owner begins where the group is
            offset = self.machine.last_committed(partition, stored)
            if offset is not None and partition in self.consumer.assignment():
                self.consumer.seek(partition, offset)
        self.runner.carry_out([Follow()])

    # the end

    def give_up(self) -> None:
        """Commit nothing more: what is in memory is void."""
        self.machine.give_up()

    def close(self) -> None:
        """Leave the stores on disk, as of the last commit."""
        for task in self.machine.tasks.values():
            task.close()
        self.machine.tasks.clear()
