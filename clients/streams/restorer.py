"""Brings stores up to date: restores tasks before they run, keeps standbys warm, waits for state that is on its way.

One long-lived task beside the processing. A catching-up task gets its targets (where its changelogs end) only once its
input positions are known: they are known when every transaction that the previous owner had begun is decided, so what
was decided lies below the targets. It runs when the targets are reached and everything has arrived that a resize sends
it. While a commit is under way nothing is restored: it may be about to write to the same stores.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from anabranch.clients.streams.changelog import changelog_topic
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.clients.streams.committer import Delivery
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.tasks import State, Task
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RECORDS_AT_A_TIME: Final = 2000
"""In one write; about ten milliseconds in which nothing is processed."""
IMPATIENT_S: Final = 0.01
PATIENT_S: Final = 0.5


class Restorer:
    """See the module. `tasks` is the runtime's own table."""

    def __init__(
        self,
        application_id: str,
        tasks: Mapping[TaskId, Task],
        reader: ChangelogReader,
        *,
        look: Callable[[], Awaitable[None]],
        positions_known: Callable[[Task], bool],
        arrived: Callable[[Task], bool],
        run: Callable[[Task], None],
        task: Callable[[TaskId], Task],
        prepare: Callable[[str, int], Awaitable[bool]],
        warm_lag: int,
        on_warm: Callable[[], None],
    ) -> None:
        self._application_id = application_id
        self._tasks = tasks
        self._reader = reader
        self._look = look
        """Asks for what has to be known before `positions_known` can say so, where the consumer does not."""
        self._positions_known = positions_known
        self._arrived = arrived
        self._run_task = run
        self._task = task
        self._prepare = prepare
        self._warm_lag = warm_lag
        self._on_warm = on_warm
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self.idle = asyncio.Lock()
        """Held while nothing may be restored."""
        self.restored = 0
        """Records read from changelogs so far."""

    def wake(self) -> None:
        """Something has come, or another task is to be restored."""
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            impatient = any(task.state is State.CATCHING_UP for task in self._tasks.values())
            try:
                async with asyncio.timeout(IMPATIENT_S if impatient else PATIENT_S):
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
            self._release()
            self._look_for_warm()

    def follow(self) -> None:
        """Read the changelogs of all tasks that do not run. Called whenever one begins or ceases to."""
        self._reader.follow(
            {
                self._changelog(task, name): store.checkpoint.offset
                for task in self._tasks.values()
                if task.state is not State.RUNNING
                for name, store in task.stores.items()
            }
        )
        self.wake()

    def copied(self, deliveries: list[Delivery]) -> int:
        """Give what was handed over to the stores on this disk, which need not read it; how many keys.

        Whoever assigns next sees where the state is already.
        """
        copied = 0
        for delivery in deliveries:
            task = self._task(TaskId(delivery.subtopology, delivery.target))
            if task.state is State.RUNNING:
                continue
            if task.take_over(delivery.store, delivery.rows, delivery.mark, delivery.offsets):
                copied += len(delivery.rows)
                end = task.stores[delivery.store].checkpoint.offset
                self._reader.seek(self._changelog(task, delivery.store), end)
        self.wake()
        return copied

    async def _aim(self) -> None:
        """Say how far those have to come that are to run."""
        todo = [
            task
            for task in self._tasks.values()
            if task.state is State.CATCHING_UP and task.targets is None and self._positions_known(task)
        ]
        if not todo:
            return
        for task in todo:
            for name in task.stores:
                await self._prepare(changelog_topic(self._application_id, name), task.id.partition + 1)
        ends = await self._reader.ends({self._changelog(task, name) for task in todo for name in task.stores})
        for task in todo:
            # It may have been revoked, or begun anew, in the meantime: then its positions are not what they were.
            if task.state is not State.CATCHING_UP or not self._positions_known(task):
                continue
            targets = {name: ends[one] for name in task.stores if (one := self._changelog(task, name)) in ends}
            if len(targets) == len(task.stores):
                task.aim(targets)
                log.debug("%s", task.progress)
        self.follow()

    async def _read(self) -> None:
        for partition in self._reader.lost():
            await self._start_over(partition)
        for partition in self._reader.waiting():
            begun = self._loop.time()
            async with self.idle:
                task, name = self._owner(partition)
                if task is None or task.state is State.RUNNING:
                    continue
                records, position = self._reader.take(partition, RECORDS_AT_A_TIME)
                self.restored += task.restore(name, records, position)
                self._news.set()
            # A copy is in no hurry: it leaves as much time to those who process as it takes.
            await asyncio.sleep(0 if task.state is State.CATCHING_UP else self._loop.time() - begun)

    async def _start_over(self, partition: TopicPartition) -> None:
        begins = await self._reader.begins([partition])
        task, name = self._owner(partition)
        if task is None or partition not in begins:
            return
        checkpoint = task.stores[name].checkpoint.offset
        if checkpoint != 0:
            log.warning("%s: %s has nothing at %d, restoring from its start", task.id, partition, checkpoint)
        async with self.idle:
            task.start_over(name)
            self._reader.seek(partition, begins[partition])

    def _release(self) -> None:
        if self.idle.locked():
            return
        ready = [
            task
            for task in self._tasks.values()
            if task.state is State.CATCHING_UP and task.restored and self._arrived(task)
        ]
        for task in ready:
            self._run_task(task)
        if ready:
            self.follow()

    def _look_for_warm(self) -> None:
        """When every copy has caught up, whoever waited for that need not wait for a probing rebalance (KIP-441)."""
        warming = [task for task in self._tasks.values() if task.warming]
        for task in warming:
            lags = [self._reader.lag(self._changelog(task, name)) for name in task.stores]
            if all(lag is not None for lag in lags) and sum(lag or 0 for lag in lags) <= self._warm_lag:
                task.warming = False
                log.info("%s is warm", task.id)
        if warming and not any(task.warming for task in warming):
            self._on_warm()

    def _owner(self, partition: TopicPartition) -> tuple[Task | None, str]:
        for task in self._tasks.values():
            for name in task.stores:
                if self._changelog(task, name) == partition:
                    return task, name
        return None, ""

    def _changelog(self, task: Task, store: str) -> TopicPartition:
        return TopicPartition(changelog_topic(self._application_id, store), task.id.partition)
