"""`Streams`: one instance of an application. Runs its tasks with a consumer, a producer and a changelog reader.

    async with Streams(topology, StreamsConfig(application_id="flights", bootstrap_servers=..., state_dir=...)) as one:
        await one.failed()

One loop processes and commits; the restorer works beside it on tasks that do not run. `TaskMachine` decides which tasks
process, commit and hand over. An instance in which something raises ends without another commit; the instance that gets
its tasks goes on from the last one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final, Self

from anabranch.clients.admin import Admin
from anabranch.clients.clock import time_of_day_clock
from anabranch.clients.config import NetworkConfig, parse_servers
from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.consumer.listener import PartitionKeyRebalanceListener
from anabranch.clients.producer.producer import Producer
from anabranch.clients.security_config import make_security
from anabranch.clients.streams.changelog_reader import ChangelogReader
from anabranch.clients.streams.committer import Committer, Moves
from anabranch.clients.streams.config import StreamsConfig
from anabranch.clients.streams.global_state_manager import GlobalStateManager
from anabranch.clients.streams.group_member import Leading, make_assignor
from anabranch.clients.streams.internal_topic_manager import InternalTopicManager
from anabranch.clients.streams.outage import FAILURES, Outage
from anabranch.clients.streams.queries import KeyMetadata, Query, QueryResult
from anabranch.clients.streams.query_executor import QueryExecutor
from anabranch.clients.streams.restorer import Restorer
from anabranch.clients.streams.serdes import JSON, Serde
from anabranch.clients.streams.state_directory import StateDirectory
from anabranch.clients.streams.streams_errors import StreamsError, TasksMigrated
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_machine import TaskMachine
from anabranch.clients.streams.task_manager import TaskManager
from anabranch.clients.streams.task_state import Progress
from anabranch.clients.streams.tasks import Task
from anabranch.clients.streams.topology import Topology
from anabranch.protocol.suggestion import suggest_arguments

log = logging.getLogger(__name__)

TRANSACTION_BUFFER_BYTES: Final = 64 * 1024 * 1024
IDLE_S: Final = 1.0
"""How long to wait for records at a time: in between, a stopping instance notices it, and can still commit."""
RETRY_S: Final = 0.5
"""How long to wait after a request that has failed for longer than the clients repeat it."""
STOP_TIMEOUT_S: Final = 10.0
"""How long a stop waits for the current processing."""


@suggest_arguments
class Streams:
    """One instance of an application: shares the work with all instances of the same application id.

    `start` and `stop` it, or use it in `async with`; it works in the background from one to the other. Wait for
    `wait_failed` meanwhile: an instance that cannot go on ends, and says so there only.

    Args:
        topology: What the application does with records; the same in all its instances.
        config: How this instance runs.
        rng: Where random choices come from.
        clock_ms: The time of day in milliseconds since 1970; the system's if None.

    Raises:
        ValueError: The topology cannot be built (`Topology.build`).
    """

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
        self._work: asyncio.Task[None] | None = None
        self._queries: QueryExecutor | None = None
        self._stopping = False
        self._outage = Outage()
        self._processed = 0

    # lifecycle

    async def start(self) -> None:
        """Connect, create the internal topics, fill the global tables up to the ends of their topics, start to work.

        Raises:
            DirectoryInUse: Another instance runs in the same `state_dir`.
            StreamsError: The topic for records that fail, or that of a global table, does not exist; or one that a
                topology with `repartition` reads.
            TaskAssignmentError: Topics that are joined do not have as many partitions as each other.
            ConnectionError: No server answers.
            KafkaError: The cluster refuses to make a topic, or this client.
            RuntimeError: The instance is started already, or was stopped.
        """
        if self._work is not None or self._stopping:
            raise RuntimeError("an instance can be started only once: make another Streams")
        self._loop = asyncio.get_running_loop()
        self._now_ms = self._clock_ms or time_of_day_clock()
        self._directory = StateDirectory(self.config.state_dir, self.config.application_id, self._rng)
        self._exit = contextlib.AsyncExitStack()
        self._exit.callback(self._directory.close)
        try:
            await self._connect()
        except BaseException:
            await self._exit.aclose()
            raise
        self._restoring = asyncio.create_task(self._restorer.run(), name="streams: restoring")
        self._following = asyncio.create_task(self._global.run(), name="streams: global tables")
        self._work = asyncio.create_task(self._run(), name="streams: processing")

    async def _connect(self) -> None:
        config = self.config
        admin = await self._exit.enter_async_context(
            Admin(config.bootstrap_servers, client_id=config.client_id, rng=self._rng, **config.security)
        )
        topics = InternalTopicManager(admin, config.application_id, self.built, config.replication_factor)
        if dead_letter_topic := config.errors_dead_letter_queue_topic_name:
            await topics.must_exist(dead_letter_topic, "dead letter topic")
        await topics.prepare_repartition()
        for part in self.built.global_tables:
            await topics.must_exist(part.sources[0], "topic of a global table")
        wakeup = asyncio.Event()
        network = NetworkConfig(
            bootstrap_servers=parse_servers(config.bootstrap_servers),
            client_id=f"{config.client_id}-restore",
            security=make_security(**config.security),
        )
        reader = ChangelogReader(network, self._rng, wakeup.set, admin.network)
        self._global = GlobalStateManager.create(config, self.built, self._directory, reader, self._rng, self._clock_ms)
        self._exit.push_async_callback(self._global.stop)
        machine = TaskMachine(config, self.built, self._directory.stored_tasks(self.built), self._loop.time())
        leading = Leading(topics, reader)
        self._manager = manager = TaskManager(
            config,
            self.built,
            machine,
            self._directory,
            reader,
            wakeup,
            make_consumer=lambda listener: self._make_consumer(machine, leading, listener),
            make_committer=lambda consumer: self._make_committer(consumer, topics),
            global_stores=self._global.rows,
        )
        self._consumer, self._committer = manager.consumer, manager.committer
        self._restorer = Restorer(machine, manager.runner, self._consumer, reader, topics, wakeup)
        self._queries = QueryExecutor(
            self.built,
            machine.tasks,
            self._consumer,
            lambda: machine.assigned,
            lambda task, store: reader.lag(machine.restore_targets.changelog(task, store)),
            self._global,
            config.application_server,
        )
        await reader.start()
        self._exit.push_async_callback(reader.stop)
        await self._global.start()
        await self._committer.start()
        self._exit.push_async_callback(self._committer.stop)
        await self._consumer.start()

    def _make_committer(self, consumer: Consumer, topics: InternalTopicManager) -> Committer:
        config = self.config
        return Committer(
            config.application_id,
            f"{config.application_id}-{self._directory.process_id.hex()}",
            self._producer,
            consumer,
            topics,
            exactly_once=config.exactly_once,
        )

    def _make_consumer(
        self, machine: TaskMachine, leading: Leading, listener: PartitionKeyRebalanceListener
    ) -> Consumer:
        config = self.config
        assignor = make_assignor(
            config,
            self.built,
            self._directory.process_id,
            leading,
            offset_sums=machine.offset_sums,
            on_tasks=machine.on_tasks,
            clock_ms=self._clock_ms,
        )
        return Consumer(
            *self.built.sources,
            bootstrap_servers=config.bootstrap_servers,
            client_id=config.client_id,
            client_rack=config.client_rack,
            group_id=config.application_id,
            group_instance_id=config.group_instance_id,
            auto_offset_reset=config.auto_offset_reset,
            isolation_level="read_committed" if config.exactly_once else "read_uncommitted",
            enable_auto_commit=False,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.rebalance_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_records=config.max_poll_records,
            partition_assignment_strategy=[assignor],
            listener=listener,
            clock_ms=self._clock_ms,
            rng=self._rng,
            **config.security,
        )

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
            **self.config.security,
        ).start()

    async def stop(self) -> None:
        """Commit, leave the group, close the stores. After a failure or a timeout, without the commit.

        Does nothing if the instance was not started, or was stopped before. The last commit may be refused; the next
        owner of the tasks then processes the records again.
        """
        if self._work is None:
            return
        self._stopping = True
        work, self._work = self._work, None
        await asyncio.wait([work], timeout=STOP_TIMEOUT_S)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        try:
            if work.cancelled() or work.exception() is not None:
                self._manager.give_up()
                await self._committer.stop()
            await self._consumer.stop()
        except (TasksMigrated, *FAILURES) as error:
            log.warning("the last commit failed: %s", error)
        finally:
            self._restoring.cancel()
            self._following.cancel()
            await asyncio.gather(self._restoring, self._following, return_exceptions=True)
            self._manager.close()
            await self._exit.aclose()

    async def wait_failed(self) -> None:
        """Wait until the instance ends by itself, and raise why; returns when it is stopped.

        Raises:
            RecordFailed: A record could not be decoded or processed, and the settings do not let the instance go on.
            StreamsError: The application cannot run as it is, such as with joined topics that were not resized alike.
            KafkaError: The cluster refuses something for good.
        """
        assert self._work is not None, "the instance is not started"
        done, _ = await asyncio.wait([self._work, self._restoring], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # state

    @property
    def tasks(self) -> Mapping[TaskId, Task]:
        """The tasks of this instance by their ids, standbys included. Read-only."""
        return self._manager.machine.tasks

    def progress(self) -> list[Progress]:
        """Return the progress of every task, by id: its stores against the ends of their changelogs."""
        return [task.progress for _, task in sorted(self.tasks.items())]

    @property
    def process_id(self) -> bytes:
        """The 16 bytes that identify this instance in the group; kept over restarts in its `state_dir`."""
        return self._directory.process_id

    @property
    def processed(self) -> int:
        """The number of processed records, including those of failed transactions."""
        return self._processed

    @property
    def dropped(self) -> int:
        """The number of failed records that were skipped or dead-lettered, including those of failed transactions."""
        return self._manager.failures.dropped

    @property
    def late(self) -> int:
        """The number of times that a record came after its window had closed, including failed transactions."""
        return self._manager.failures.late

    @property
    def moves(self) -> Moves:
        """How much state has moved with its keys from here."""
        return self._committer.moves

    @property
    def restored(self) -> int:
        """The number of records read from changelogs."""
        return self._restorer.restored

    # queries

    def query(self, store: str, query: Query, *, stale: bool = False, value: Serde = JSON) -> QueryResult:
        """Return what this instance has of a store, as of the last commit, and why it lacks the rest.

        Args:
            store: The name of the store, as in the topology.
            query: `KeyQuery` or `RangeQuery`; for a store of windows `WindowQuery`.
            stale: Whether standbys answer, too, and tasks that restore their state: `QueryResult.partitions` has
                their lags.
            value: How values are decoded. `BYTES` decodes nothing.

        Returns:
            The rows here, and the partitions that are elsewhere, or cannot be queried now.

        Raises:
            ValueError: There is no such store, the query is not for its kind, or a value cannot be decoded.
            StreamsError: The instance does not run.
        """
        return self._executor().execute(store, query, stale=stale, value=value)

    def query_metadata_for_key(self, store: str, key: bytes) -> KeyMetadata:
        """Return which instances have the state of a key, by their `application_server`.

        Args:
            store: The name of the store, as in the topology.
            key: The key.

        Returns:
            The partition of the key, and the instances with its task and its standbys.

        Raises:
            ValueError: There is no such store.
            StreamsError: The instance does not run.
        """
        return self._executor().metadata(store, key)

    def awaited_state(self, task: TaskId) -> str:
        """Return which state a resize still moves to a task of this instance.

        Args:
            task: Its id, one of `tasks`.

        Returns:
            The partitions that it comes from, as a sentence; empty if none is awaited.

        Raises:
            StreamsError: The instance does not run.
        """
        return self._executor().awaited(self.tasks[task])

    def _executor(self) -> QueryExecutor:
        if self._queries is None or self._work is None or self._work.done():
            raise StreamsError("the instance does not run: query it between `start` and `stop`; `wait_failed` says why")
        return self._queries

    # processing

    async def _run(self) -> None:
        manager, machine = self._manager, self._manager.machine
        while not self._stopping:
            try:
                timeout_s = min(max(machine.commit_schedule.due - self._loop.time(), 0.001), IDLE_S)
                batches = await self._consumer.getmany(timeout_ms=int(1000 * timeout_s) + 1)
                now_ms = self._now_ms()
                outputs = machine.process(self._consumer, batches, now_ms) + machine.punctuate(now_ms)
                self._processed += sum(map(len, batches.values()))
                if batches or outputs:
                    await self._committer.send(outputs)
                if self._loop.time() >= machine.commit_schedule.due:
                    await manager.commit()
                    await asyncio.sleep(0)  # the restorer's turn: the next commit may begin at once
            except (TasksMigrated, *FAILURES) as error:
                await self._recover(error)
            for beside in (self._restoring, self._following):
                if beside.done():
                    beside.result()

    async def _recover(self, error: Exception) -> None:
        """Return to the last commit. During an outage the outcome of the transaction may be unknown: a new producer
        ends it, and then the committed offsets and the changelogs show the outcome.
        """
        while True:
            outage = not isinstance(error, TasksMigrated)
            if outage:
                self._outage.endure(error, self._loop.time(), self._committer.commits)
                log.warning("trying again: %s", error)
                await asyncio.sleep(RETRY_S)
            try:
                if outage:
                    await self._committer.replace_producer()
                await self._manager.recover(error)
                return
            except FAILURES as failure:
                error = failure
