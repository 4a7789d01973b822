"""`Streams`: one instance of an application. Runs its tasks on a consumer, a producer and a reader of changelogs.

    async with Streams(topology, StreamsConfig(application_id="flights", bootstrap_servers=..., state_dir=...)) as one:
        await one.failed()

One loop processes and commits; the restorer works beside it on tasks that do not run. Whatever changes the set of tasks
comes through the consumer's listener, inside that loop, and commits first. What a commit refuses is processed again
from the last one: the tasks forget what is in memory, catch up, and the input is sought back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Final, Self

from clients.admin import Admin
from clients.config import NetworkConfig, parse_servers
from clients.consumer.consumer import Consumer
from clients.consumer.listener import PartitionKeyRebalanceListener
from clients.producer.producer import Producer
from clients.streams import handover
from clients.streams.changelog_reader import ChangelogReader
from clients.streams.committer import Committer, Departure, Moves, TasksMigrated
from clients.streams.config import StreamsConfig
from clients.streams.group_member import Leading, make_assignor
from clients.streams.internal_topics import InternalTopics
from clients.streams.partition_assignor import AssignedTasks
from clients.streams.restorer import Restorer
from clients.streams.state_directory import StateDirectory
from clients.streams.subscription_info import RUNNING
from clients.streams.task import TaskId
from clients.streams.tasks import Progress, State, Task
from clients.streams.topology import Topology
from protocol.errors import KafkaError
from protocol.lineage import Segment
from protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

TRANSACTION_BUFFER_BYTES: Final = 64 * 1024 * 1024


class Streams:
    """See the module."""

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        *,
        rng: random.Random | None = None,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self.config = config
        self.built = topology.build(config.application_id)
        self._rng = rng if rng is not None else random.Random()
        self._clock_ms = clock_ms
        self._tasks: dict[TaskId, Task] = {}
        self._parked: dict[TaskId, int] = {}
        """Tasks that left state here and are not open: the sums of their checkpoints."""
        self._suspended: set[TaskId] = set()
        """Tasks that ran until an eager rebalance began."""
        self._expected: set[TaskId] = set()
        """Running tasks to which keys are about to come, and which have changes to commit first."""
        self._assigned = AssignedTasks()
        self._offsets: dict[TopicPartition, int] = {}
        """What was committed last, or where reading began."""
        self._work: asyncio.Task[None] | None = None
        self._stopping = False
        self._processed = 0

    # life

    async def start(self) -> None:
        """Connect, make internal topics, and begin to work."""
        config = self.config
        self._loop = asyncio.get_running_loop()
        self._directory = StateDirectory(config.state_dir, config.application_id, self._rng)
        self._exit = contextlib.AsyncExitStack()
        self._exit.callback(self._directory.close)
        try:
            await self._connect()
        except BaseException:
            await self._exit.aclose()
            raise
        for task in self._directory.tasks():
            if task.subtopology < len(self.built.subtopologies):
                stores = self.built.subtopologies[task.subtopology].stores
                self._parked[task] = sum(self._directory.checkpoints(task, stores).values())
        self._restoring = asyncio.create_task(self._restorer.run(), name="streams: restoring")
        self._work = asyncio.create_task(self._run(), name="streams: processing")

    async def _connect(self) -> None:
        config = self.config
        self._admin = await self._exit.enter_async_context(
            Admin(config.bootstrap_servers, client_id=config.client_id, rng=self._rng)
        )
        self._topics = InternalTopics(self._admin, config.application_id, self.built, config.replication_factor)
        await self._topics.prepare_repartition()
        network = NetworkConfig(
            bootstrap_servers=parse_servers(config.bootstrap_servers), client_id=f"{config.client_id}-restore"
        )
        self._reader = ChangelogReader(network, self._rng, lambda: self._restorer.wake(), self._admin.network)
        self._restorer = Restorer(
            config.application_id,
            self._tasks,
            self._reader,
            positions_known=self._positions_known,
            arrived=self._arrived,
            run=self._begin,
            task=self._task,
            warm_lag=config.acceptable_recovery_lag,
            on_warm=lambda: self._consumer.enforce_rebalance(),
            prepare=self._topics.prepare,
        )
        await self._reader.start()
        self._exit.push_async_callback(self._reader.stop)
        self._assignor = make_assignor(
            config,
            self.built,
            self._directory.process_id,
            Leading(self._topics, self._reader),
            offset_sums=self._offset_sums,
            on_tasks=self._on_tasks,
            clock_ms=self._clock_ms,
        )
        self._consumer = Consumer(
            *self.built.sources,
            bootstrap_servers=config.bootstrap_servers,
            client_id=config.client_id,
            group_id=config.application_id,
            group_instance_id=config.group_instance_id,
            auto_offset_reset=config.auto_offset_reset,
            isolation_level="read_committed" if config.exactly_once else "read_uncommitted",
            enable_auto_commit=False,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_records=config.max_poll_records,
            partition_assignment_strategy=[self._assignor],
            listener=_Listener(self),
            clock_ms=self._clock_ms,
            rng=self._rng,
        )
        self._committer = Committer(
            config.application_id,
            f"{config.application_id}-{self._directory.process_id.hex()}",
            self._producer,
            exactly_once=config.exactly_once,
            prepare=self._topics.prepare,
            group=self._consumer.group_metadata,
            commit_offsets=self._consumer.commit,
        )
        await self._committer.start()
        self._exit.push_async_callback(self._committer.stop)
        await self._consumer.start()

    async def _producer(self, transactional_id: str | None) -> Producer:
        return await Producer(
            self.config.bootstrap_servers,
            client_id=self.config.client_id,
            transactional_id=transactional_id,
            transaction_timeout_ms=self.config.transaction_timeout_ms,
            buffer_bytes=TRANSACTION_BUFFER_BYTES,
            batch_bytes=65536,
            clock_ms=self._clock_ms,
            rng=self._rng,
        ).start()

    async def stop(self) -> None:
        """Commit, leave the group, close the stores."""
        if self._work is None:
            return
        self._stopping = True
        work, self._work = self._work, None
        self._consumer_wake()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([work])
        try:
            await self._consumer.stop()
        except TasksMigrated as error:
            log.warning("the last commit is void: %s", error)
        finally:
            self._restoring.cancel()
            await asyncio.gather(self._restoring, return_exceptions=True)
            for task in self._tasks.values():
                task.close()
            self._tasks.clear()
            await self._exit.aclose()

    async def failed(self) -> None:
        """Wait until the instance ends, and raise why. Stopping it ends this too."""
        assert self._work is not None, "an instance is started first"
        done, _ = await asyncio.wait([self._work, self._restoring], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    # looking inside

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """The tasks of this instance, standbys included."""
        return self._tasks

    def progress(self) -> list[Progress]:
        """Every task, and how far its stores are from the ends of their changelogs."""
        return [task.progress for _, task in sorted(self._tasks.items())]

    @property
    def process_id(self) -> bytes:
        """Who this instance is, over restarts."""
        return self._directory.process_id

    @property
    def processed(self) -> int:
        """How many records were processed, also those whose transaction failed."""
        return self._processed

    @property
    def moves(self) -> Moves:
        """How much state has followed its keys from here."""
        return self._committer.moves

    @property
    def restored(self) -> int:
        """How many records were read from changelogs."""
        return self._restorer.restored

    # processing

    async def _run(self) -> None:
        self._commit_due = self._loop.time()
        while not self._stopping:
            try:
                patience_s = max(self._commit_due - self._loop.time(), 0.001)
                batches = await self._consumer.getmany(timeout_ms=int(1000 * patience_s) + 1)
                for partition, records in batches.items():
                    outputs = self._task_of(partition).process(records)
                    self._processed += len(records)
                    await self._committer.send(outputs)
                if self._loop.time() >= self._commit_due:
                    await self.commit()
            except TasksMigrated as error:
                await self._recover(error)
            if self._restoring.done():
                self._restoring.result()

    async def commit(self) -> None:
        """Commit everything that was processed, and hand over what has left; not while the group rebalances."""
        if self._consumer.rebalancing:
            return
        departures = self._departures()
        leaving = {departure.task.id for departure in departures}
        tasks = [task for task in self._tasks.values() if task.state is State.RUNNING or task.id in leaving]
        offsets = self._progressed(tasks)
        self._commit_due = self._loop.time() + self.config.commit_interval_ms / 1000
        if not (offsets or departures or self._committer.open or any(task.changed for task in tasks)):
            self._catch_up_expected()
            return
        async with self._restorer.idle:
            deliveries = await self._committer.commit(tasks, offsets, departures)
            self._offsets.update(offsets)
            self._committer.moves.copied += self._restorer.copied(deliveries)
        if deliveries:
            self._commit_due = self._loop.time()  # there may be more than one transaction takes
            self._restorer.follow()
        self._catch_up_expected()

    def _progressed(self, tasks: Collection[Task]) -> dict[TopicPartition, int]:
        """The positions that are not committed yet."""
        mine = self._consumer.assignment()
        positions = {one: self._consumer.position(one) for task in tasks for one in task.partitions if one in mine}
        return {one: at for one, at in positions.items() if at >= 0 and at != self._offsets.get(one)}

    def _task_of(self, partition: TopicPartition) -> Task:
        return self._tasks[TaskId(self.built.subtopology_of(partition.topic).index, partition.partition)]

    async def _recover(self, error: TasksMigrated) -> None:
        """Nothing since the last commit has happened: forget it, and read the input again from there."""
        log.warning("going back to the last commit: %s", error)
        for task in self._tasks.values():
            if task.state is State.RUNNING or task.changed:
                task.aborted()
                self._pause(task)
        for partition in self._consumer.assignment():
            try:
                at = await self._consumer.committed(partition)
            except KafkaError:
                continue  # the membership is gone: whoever is assigned next begins where the group is
            known = self._offsets.get(partition) if at is None else at
            if known is not None and partition in self._consumer.assignment():
                self._consumer.seek(partition, known)
        self._restorer.follow()

    # resizes

    def _departures(self) -> list[Departure]:
        """The hand-overs that are due, of tasks whose state is complete up to the cut."""
        found: list[Departure] = []
        mine = self._consumer.assignment()
        for task in self._tasks.values():
            if task.state is State.STANDBY or (task.state is State.CATCHING_UP and not task.restored):
                continue
            for partition in task.partitions:
                known = self._consumer.segment(partition) if task.stores and partition in mine else None
                if known is None:
                    continue
                lineage, segment = known
                marks = task.marks()
                present = self._consumer.partitions_of(partition.topic)
                for generation in handover.due(lineage, segment, min(one.departed for one in marks)):
                    opened = Segment(partition.partition, generation)
                    before = lineage.previous(opened)
                    assert before is not None, "keys leave where a segment ends"
                    if any(handover.missing(lineage, before, one, present) for one in marks):
                        break
                    found.append(Departure(task, lineage, opened))
        return found

    def _arrived(self, task: Task) -> bool:
        """Whether everything that a resize sends to a task has come, for what it is about to read."""
        for partition in task.partitions:
            known = self._consumer.segment(partition) if partition in self._consumer.assignment() else None
            if known is None:
                continue
            present = self._consumer.partitions_of(partition.topic)
            for marks in task.marks():
                if handover.missing(*known, marks, present):
                    return False
        return True

    # tasks

    def _positions_known(self, task: Task) -> bool:
        mine = self._consumer.assignment()
        there = [one for one in task.partitions if one in mine]
        known = bool(there) and all(self._consumer.position(one) >= 0 for one in there)
        if known:
            for one in there:
                self._offsets.setdefault(one, self._consumer.position(one))
        return known

    def _begin(self, task: Task) -> None:
        task.run()
        self._consumer.resume(*(one for one in task.partitions if one in self._consumer.assignment()))
        log.info("%s runs, with %d keys", task.id, sum(task.disk.entries(name) for name in task.stores))

    def _pause(self, task: Task) -> None:
        mine = self._consumer.assignment()
        self._consumer.pause(*(one for one in task.partitions if one in mine))

    def _offset_sums(self) -> dict[TaskId, int]:
        """What this instance has of each task with state, for whoever assigns."""
        sums = dict(self._parked)
        for task in self._tasks.values():
            if not task.stores:
                continue
            running = task.state is State.RUNNING or task.id in self._suspended
            sums[task.id] = RUNNING if running else sum(one.checkpoint.offset for one in task.stores.values())
        return sums

    def _on_tasks(self, assigned: AssignedTasks) -> None:
        self._assigned = assigned

    def take_tasks(self) -> None:
        """Have exactly the tasks that were assigned: those that run go on, new ones catch up, others are closed."""
        self._suspended.clear()
        active = set(self._assigned.active)
        standby = {task for task in self._assigned.standby if task not in active}
        for task_id in self._tasks.keys() - active - standby:
            task = self._tasks.pop(task_id)
            self._parked[task_id] = sum(one.checkpoint.offset for one in task.stores.values())
            task.close()
        for task_id in sorted(active | standby):
            wanted = State.CATCHING_UP if task_id in active else State.STANDBY
            task_or_none = self._tasks.get(task_id)
            if task_or_none is None:
                self._tasks[task_id] = self._open(task_id, wanted)
            elif wanted is State.STANDBY:
                task_or_none.stand_by()
            elif task_or_none.state is State.STANDBY:
                task_or_none.catch_up()
        for task_id in active:
            if self._tasks[task_id].state is not State.RUNNING:
                self._pause(self._tasks[task_id])
        self._restorer.follow()

    def _task(self, task_id: TaskId) -> Task:
        """A task; one that is not here becomes a standby until tasks are assigned again."""
        task = self._tasks.get(task_id)
        if task is None:
            task = self._tasks[task_id] = self._open(task_id, State.STANDBY)
        return task

    def _open(self, task_id: TaskId, state: State) -> Task:
        self._parked.pop(task_id, None)
        subtopology = self.built.subtopologies[task_id.subtopology]
        disk = self._directory.open(task_id, subtopology.stores)
        return Task(task_id, self.config.application_id, subtopology, disk, state=state)

    def give_back(self, partitions: Collection[TopicPartition], *, lost: bool) -> None:
        """The tasks of these partitions run here no more; their stores are kept warm until it is known who has them."""
        for partition in partitions:
            task = self._tasks.get(TaskId(self.built.subtopology_of(partition.topic).index, partition.partition))
            self._offsets.pop(partition, None)
            if task is None:
                continue
            if lost:
                task.aborted()
            elif self.config.rebalance_protocol == "eager" and task.state is State.RUNNING:
                self._suspended.add(task.id)
            task.stand_by()
        self._restorer.follow()

    async def drop_transaction(self) -> None:
        """What was sent since the last commit is void."""
        await self._committer.drop()

    async def expect(self, partitions: Collection[TopicPartition]) -> None:
        """Keys are about to come to these partitions: their tasks see to it that the state is there, after a commit.

        Which may have to wait for the end of a rebalance; until then nothing of them is processed.
        """
        for partition in partitions:
            task = self._task_of(partition)
            if task.state is State.RUNNING and not self._arrived(task):
                self._pause(task)
                self._expected.add(task.id)
        await self.commit()
        self._catch_up_expected()

    def _catch_up_expected(self) -> None:
        tasks = [self._tasks[task] for task in self._expected & self._tasks.keys()]
        for task in tasks:
            if task.state is not State.RUNNING:
                self._expected.discard(task.id)
            elif not task.changed:
                self._expected.discard(task.id)
                task.catch_up()
                self._restorer.follow()

    def _consumer_wake(self) -> None:
        self._restorer.wake()


class _Listener(PartitionKeyRebalanceListener):
    """What the consumer tells of, and what the instance does about it."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit, and stop processing these."""
        await self._streams.commit()
        self._streams.give_back(partitions, lost=False)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing can be committed any more."""
        await self._streams.drop_transaction()
        self._streams.give_back(partitions, lost=True)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Take up what was assigned."""
        self._streams.take_tasks()

    async def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Hand over what leaves here: nobody is to wait for the next commit."""
        await self._streams.commit()

    async def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Have what comes here."""
        await self._streams.expect(partitions)
