"""Restores tasks before they run, keeps standbys up to date, and waits for moving state.

A long-lived asyncio task beside processing. It gathers the slow inputs of `TaskMachine` (whether offsets of the group
are stable, changelog ends and records); the machine then decides how far each task is restored, and which may run. A
task that is to run gets its targets (the changelog ends) only once its input positions are known. Every transaction of
an earlier owner is decided by then, so its records are below the targets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.clients.streams.internal_topic_manager import InternalTopicManager
from anabranch.clients.streams.task_machine import TaskMachine
from anabranch.clients.streams.task_runner import TaskRunner
from anabranch.clients.streams.task_state import State
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RECORDS_AT_A_TIME: Final = 2000
"""Records in one write; about ten milliseconds without processing."""
IMPATIENT_S: Final = 0.01
PATIENT_S: Final = 0.5
MISSING_RETRY_S: Final = 0.2
"""How long to wait before changelogs without a leader are queried again."""
WARN_EVERY_S: Final = 10.0
"""How often an obstacle is logged."""


class Restorer:
    """Restores the tasks of one instance until its `run` is cancelled."""

    def __init__(
        self,
        machine: TaskMachine,
        runner: TaskRunner,
        consumer: Consumer,
        reader: ChangelogReader,
        topics: InternalTopicManager,
        wakeup: asyncio.Event,
    ) -> None:
        """Create a restorer; `wakeup` is set when changelog records have arrived, or another task is to be restored."""
        self._machine = machine
        self._runner = runner
        self._consumer = consumer
        self._reader = reader
        self._topics = topics
        self._wakeup = wakeup
        self._loop = asyncio.get_running_loop()
        self._aim_at = 0.0
        self._warn_at: dict[str, float] = {}
        """When each kind of obstacle is to be logged again."""
        self.restored = 0
        """Number of records read from changelogs so far."""

    async def run(self) -> None:
        """Restore until cancelled."""
        while True:
            try:
                async with asyncio.timeout(IMPATIENT_S if self._machine.catching_up else PATIENT_S):
                    await self._wakeup.wait()
            except TimeoutError:
                pass
            self._wakeup.clear()
            try:
                await self._query_removed()
                if self._machine.doubt(self._reader.lost_partitions(), self._reader.topic_ids()):
                    self._reader.request_refresh()
                await self._aim()
                await self._read()
            except (ConnectionError, TimeoutError, KafkaError) as error:
                self._warn("cannot look changelogs up", error)
                await asyncio.sleep(IMPATIENT_S)
            self._runner.carry_out(self._machine.find_lost_arrivals(self._consumer))
            self._runner.carry_out(self._machine.release(self._consumer))
            self._runner.carry_out(self._machine.note_lags(self._lags()))

    async def _query_removed(self) -> None:
        """Query whether the offsets of removed partitions are stable."""
        removed, tasks = self._machine.removed, list(self._machine.tasks.values())
        partitions, generation = removed.undecided_partitions(tasks), removed.generation
        if partitions:
            removed.note_stable(tasks, await self._consumer.stable(partitions), generation)

    async def _aim(self) -> None:
        """Look up the changelogs' bounds, to set targets and to check that stores belong to their changelogs."""
        tasks = self._machine.is_without_target(self._consumer)
        if not tasks or self._loop.time() < self._aim_at:
            return
        checkpoints = self._machine.restore_targets.checkpoints(tasks)
        for topic, partition in sorted(checkpoints):
            await self._topics.prepare(topic, partition + 1)
        bounds = await self._reader.bounds(checkpoints)
        if missing := checkpoints.keys() - bounds.keys():
            self._note_missing(missing)
        self._runner.carry_out(self._machine.aim(self._consumer, tasks, checkpoints, bounds))

    def _note_missing(self, missing: Collection[TopicPartition]) -> None:
        """Recreate deleted changelogs, and log unavailable ones periodically."""
        obstacles = self._reader.obstacles(sorted(missing))
        self._aim_at = self._loop.time() + MISSING_RETRY_S
        self._topics.forget({partition.topic for partition in missing})
        if obstacles:
            self._warn("waiting for changelogs", "; ".join(dict.fromkeys(obstacles)))

    def _warn(self, what: str, reason: object) -> None:
        """Log an obstacle, each kind periodically: it is met again in each round."""
        now = self._loop.time()
        if now >= self._warn_at.get(what, now):
            self._warn_at[what] = now + WARN_EVERY_S
            log.warning("%s: %s", what, reason)

    async def _read(self) -> None:
        for partition in self._reader.waiting():
            started_s = self._loop.time()
            restoring = self._machine.restoring(partition)
            if restoring is None:
                continue
            task, name = restoring
            try:
                records, position = self._reader.take(partition, RECORDS_AT_A_TIME)
            except KafkaError as error:  # it is damaged, and fetched again: another replica may have it intact
                self._warn(f"cannot read {partition}", error)
                continue
            self.restored += task.state_manager.restore(name, records, position)
            self._wakeup.set()
            # A copy is not urgent: it leaves as much time for processing as it takes.
            await asyncio.sleep(0 if task.state is State.CATCHING_UP else self._loop.time() - started_s)

    def _lags(self) -> dict[TopicPartition, int]:
        """Return how much of the changelogs of new copies is still to be read, where known."""
        warming = (task for task in self._machine.tasks.values() if task.warming)
        lags = {
            one: self._reader.lag(one)
            for task in warming
            for name in task.stores
            if (one := self._machine.restore_targets.changelog(task, name))
        }
        return {one: lag for one, lag in lags.items() if lag is not None}
