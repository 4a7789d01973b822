"""Brings stores up to date: restores tasks before they run, keeps standbys warm, waits for state that is on its way.

One long-lived task beside the processing. It gathers what `TaskMachine` has to know, which takes time (whether offsets
of the group are stable, where changelogs end, their records), and then has the machine decide: which task is restored
up to where, and which may run. A task that is to run gets its targets (where its changelogs end) only once its input
positions are known. Every transaction that an earlier owner had begun is decided by then, so what was decided lies
below the targets.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.clients.streams.internal_topic_manager import InternalTopicManager
from anabranch.clients.streams.task_machine import TaskMachine
from anabranch.clients.streams.task_runner import TaskRunner
from anabranch.clients.streams.tasks import State
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RECORDS_AT_A_TIME: Final = 2000
"""In one write; about ten milliseconds in which nothing is processed."""
IMPATIENT_S: Final = 0.01
PATIENT_S: Final = 0.5


class Restorer:
    """Restores the tasks of one instance until its `run` is cancelled."""

    def __init__(
        self,
        machine: TaskMachine,
        runner: TaskRunner,
        consumer: Consumer,
        reader: ChangelogReader,
        topics: InternalTopicManager,
        news: asyncio.Event,
    ) -> None:
        """`news` is set when records of changelogs have come, or another task is to be restored."""
        self._machine = machine
        self._runner = runner
        self._consumer = consumer
        self._reader = reader
        self._topics = topics
        self._news = news
        self._loop = asyncio.get_running_loop()
        self.restored = 0
        """Records read from changelogs so far."""

    async def run(self) -> None:
        """Restore whenever there is something to restore, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(IMPATIENT_S if self._machine.catching_up else PATIENT_S):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            try:
                await self._look()
                await self._aim()
                await self._read()
            except (ConnectionError, TimeoutError, KafkaError) as error:
                log.warning("changelogs cannot be read: %s", error)
                await asyncio.sleep(IMPATIENT_S)
            self._runner.carry_out(self._machine.release(self._consumer))
            self._runner.carry_out(self._machine.note_lags(self._lags()))

    async def _look(self) -> None:
        """Ask the group whether the offsets of removed partitions are stable."""
        removed, tasks = self._machine.removed, list(self._machine.tasks.values())
        asked, generation = removed.undecided(tasks), removed.generation
        if asked:
            removed.note_stable(tasks, await self._consumer.stable(asked), generation)

    async def _aim(self) -> None:
        """Look up how far the tasks that are to run have to be restored."""
        tasks = self._machine.is_without_target(self._consumer)
        if not tasks:
            return
        changelogs = {self._machine.changelog(task, name) for task in tasks for name in task.stores}
        for topic, partition in sorted(changelogs):
            await self._topics.prepare(topic, partition + 1)
        ends = await self._reader.ends(changelogs)
        self._runner.carry_out(self._machine.aim(self._consumer, tasks, ends))

    async def _read(self) -> None:
        for partition in self._reader.lost():
            await self._start_over(partition)
        for partition in self._reader.waiting():
            begun = self._loop.time()
            restoring = self._machine.restoring(partition)
            if restoring is None:
                continue
            task, name = restoring
            records, position = self._reader.take(partition, RECORDS_AT_A_TIME)
            self.restored += task.restore(name, records, position)
            self._news.set()
            # A copy is in no hurry: it leaves as much time for processing as it takes.
            await asyncio.sleep(0 if task.state is State.CATCHING_UP else self._loop.time() - begun)

    async def _start_over(self, changelog: TopicPartition) -> None:
        begins = await self._reader.begins([changelog])
        restoring = self._machine.restoring(changelog)
        if restoring is None or changelog not in begins:
            return
        task, name = restoring
        checkpoint = task.stores[name].checkpoint.offset
        if checkpoint != 0:
            log.warning("%s: %s has nothing at %d, restoring from its start", task.id, changelog, checkpoint)
        task.start_over(name)
        self._reader.seek(changelog, begins[changelog])

    def _lags(self) -> dict[TopicPartition, int]:
        """How much of the changelogs of new copies is still to be read, where that is known."""
        warming = (task for task in self._machine.tasks.values() if task.warming)
        lags = {
            one: self._reader.lag(one)
            for task in warming
            for name in task.stores
            if (one := self._machine.changelog(task, name))
        }
        return {one: lag for one, lag in lags.items() if lag is not None}
