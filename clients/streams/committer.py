"""Commits the work of tasks: output, changelogs, hand-overs and input offsets.

`exactly_once`: one transaction of one producer per instance includes all of it, and an instance that lost its tasks
cannot commit it, because the group refuses its offsets (KIP-447). `at_least_once`: everything is stored before the
offsets are, and processed again after a crash in between; only hand-overs are transactions there too, because repeating
one could overwrite newer state with old. Nothing fences the rest. So an instance confirms its membership before each
effect: after a long stop it must not write old state behind its successor's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.producer.producer import Producer
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.clients.producer.transaction_errors import AbortableError, FatalError
from anabranch.clients.streams.changelog import (
    MARK_HEADERS,
    changelog_topic,
)
from anabranch.clients.streams.changelog_bounds import UNKNOWN_TOPIC_ID
from anabranch.clients.streams.handover_writer import Delivery, HandoverWriter
from anabranch.clients.streams.internal_topic_manager import InternalTopicManager
from anabranch.clients.streams.streams_errors import StreamsError, TasksMigrated
from anabranch.clients.streams.task_effects import Commit
from anabranch.clients.streams.tasks import Output, Task
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

LOST_MEMBERSHIP: Final = frozenset(
    {ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS}
)
REFUSED_RECORD: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors that records have again when they are processed again. They end the instance, as in Kafka Streams."""
COMMIT_ATTEMPTS: Final = 10
SLOW_S: Final = 1.0
"""How long a commit may take before its changelogs are looked up, and how often they then are."""
MISSING_LOOKS: Final = 4
"""After so many lookups in a row without a topic it is deleted; a broker that has just started may not know it yet."""


@dataclass(slots=True)
class Moves:
    """How much state has moved with its keys."""

    deliveries: int = 0
    """Deliveries, each from one store of a task to another task."""
    keys: int = 0
    """Keys that have left a task."""
    held: int = 0
    """Keys that those tasks held before."""
    copied: int = 0
    """Keys copied from disk to disk, because their new task is on the same instance."""


Connect = Callable[[str | None], Awaitable[Producer]]
"""Starts a producer; it is transactional if a transactional id is given."""
_Logged = Mapping[str, Sequence["asyncio.Future[RecordMetadata]"]]
"""One task's writes to its changelogs, by store."""


class Committer:
    """Makes the commits of one instance, with one producer."""

    def __init__(
        self,
        application_id: str,
        transactional_id: str,
        connect: Connect,
        consumer: Consumer,
        topics: InternalTopicManager,
        *,
        exactly_once: bool,
    ) -> None:
        """Create a committer; `consumer` is the group member for which offsets are committed."""
        self._application_id = application_id
        self._transactional_id = transactional_id
        self._connect = connect
        self._consumer = consumer
        self._topics = topics
        self._handovers = HandoverWriter(application_id, topics)
        self.exactly_once = exactly_once
        self._producer: Producer | None = None
        self._open = False
        self._sent: list[asyncio.Future[RecordMetadata]] = []
        """Output sent outside transactions."""
        self._changelog_deleted = False
        self.moves = Moves()
        self.commits = 0

    async def start(self) -> None:
        """Connect; with exactly_once this ends an open transaction of a crashed instance of the same name."""
        self._producer = await self._connect(self._transactional_id if self.exactly_once else None)

    async def stop(self) -> None:
        """Disconnect; uncommitted work is aborted."""
        self._forget_sent()
        producer, self._producer = self._producer, None
        if producer is None:
            return
        with contextlib.suppress(TimeoutError):
            # Records of a changelog that was deleted can only be dropped.
            async with asyncio.timeout(0 if self._changelog_deleted else None):
                await producer.stop()

    @property
    def open(self) -> bool:
        """Whether something was sent since the last commit."""
        return self._open

    async def send(self, outputs: Sequence[Output]) -> None:
        """Send the output of tasks.

        Raises `TasksMigrated` if the transaction is aborted, or, without transactions, if the group continued without
        this instance: then other instances process the same records.
        """
        try:
            producer = await self._begin()
            if not self.exactly_once:
                await self._must_be_member()
            for topic, key, value, timestamp_ms, headers in outputs:
                receipt = await producer.send(topic, value, key, timestamp_ms=timestamp_ms, headers=headers)
                if not self.exactly_once:
                    self._sent.append(receipt)
        except (AbortableError, FatalError) as error:
            await self.abort(error)

    async def commit(self, commit: Commit) -> list[Delivery]:
        """Store all work of the tasks since the last commit; return what was handed over.

        The tasks must not change meanwhile. Raises `TasksMigrated` if the work since the last commit is void, and
        `StreamsError` if a changelog was deleted.
        """
        tasks = [*commit.tasks, *(departure.task for departure in commit.departures)]
        changelogs = {changelog_topic(self._application_id, name) for task in tasks for name in task.stores}
        storing = asyncio.ensure_future(self._store(commit))
        watching = asyncio.ensure_future(self._watch(changelogs))
        try:
            await asyncio.wait([storing, watching], return_when=asyncio.FIRST_COMPLETED)
            if not storing.done():
                watching.result()
            return await storing
        finally:
            for one in (storing, watching):
                one.cancel()
            await asyncio.gather(storing, watching, return_exceptions=True)

    async def _store(self, commit: Commit) -> list[Delivery]:
        tasks, offsets = commit.tasks, commit.offsets
        try:
            producer = await self._begin()
            await self._check_changelogs(producer, tasks)
            if self.exactly_once:
                deliveries = await self._store_in_transaction(producer, commit)
            else:
                await self._must_be_member()
                written = await self._log_changes(producer, tasks)
                await producer.flush()
                sent, self._sent = self._sent, []
                if failures := [error for receipt in sent if (error := receipt.exception()) is not None]:
                    raise failures[0]
                self._settle(tasks, written, transactional=False)
                for task, name in await self._recreated(producer, tasks):
                    task.state_manager.doubt(name)
                deliveries = await self._hand_over_apart(commit)
                if offsets:
                    await self._consumer.commit(offsets)
        except (AbortableError, FatalError) as error:
            await self.abort(error)
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_PARTITIONS:  # only records of changelogs name their partition
                raise StreamsError(
                    f"a changelog was deleted and created again with other partitions ({error}): delete it, and start "
                    "the instance again; it creates the topic and an empty store (changelog_auto_offset_reset)"
                ) from error
            if error.code not in LOST_MEMBERSHIP:
                raise
            raise TasksMigrated(str(error)) from error
        self._open = False
        self.commits += 1
        if commit.departures:
            moved = sum(len(delivery.rows) for delivery in deliveries)
            self.moves.deliveries += sum(bool(one.mark) for one in deliveries)
            self.moves.keys += moved
            self.moves.held += moved + sum(delivery.stayed for delivery in deliveries)
            log.info("moved the state of %d keys to new partitions", moved)
        return deliveries

    async def abort(self, error: KafkaError) -> None:
        """Abort the transaction. Raises `TasksMigrated`; `StreamsError` if the same records would fail again."""
        await self.drop(fenced=isinstance(error, FatalError))
        if error.code in REFUSED_RECORD:
            raise StreamsError(f"a topic refuses a record of this application: {error}") from error
        raise TasksMigrated(str(error)) from error

    async def drop(self, *, fenced: bool = False) -> None:
        """Drop the output since the last commit. A fenced producer is replaced."""
        was_open, self._open = self._open, False
        self._forget_sent()
        if self._producer is None or not self.exactly_once or not (was_open or fenced):
            return
        try:
            if not fenced:
                await self._producer.abort_transaction()
                return
        except KafkaError as error:
            log.warning("the transaction cannot be aborted: %s", error)
        log.warning("restarting the producer: another one with its transactional id has fenced it")
        await self.replace_producer()

    async def replace_producer(self) -> None:
        """Drop the output since the last commit, and start another producer, which ends a transaction whose outcome is
        unknown. May be repeated if it fails.
        """
        self._open = False
        await self.stop()
        await self.start()

    # internals

    def _forget_sent(self) -> None:
        """Drop the receipts of output that is not committed; nothing else looks at their errors."""
        for receipt in self._sent:
            receipt.add_done_callback(_retrieve_exception)
        self._sent.clear()

    async def _watch(self, changelogs: Collection[str]) -> None:
        """Raise `StreamsError` once a changelog does not exist any more: its records are retried until a timeout."""
        looks: Counter[str] = Counter()
        while True:
            await asyncio.sleep(SLOW_S)
            try:
                missing = await self._topics.missing(changelogs)
            except (ConnectionError, TimeoutError, KafkaError) as error:
                log.debug("cannot look up changelogs: %s", error)
                continue
            looks = Counter({topic: looks[topic] + 1 for topic in missing})
            for topic, count in looks.items():
                if count == 1:
                    log.warning("the changelog %s does not exist, and is being written", topic)
                if count >= MISSING_LOOKS:
                    self._changelog_deleted = True
                    raise StreamsError(
                        f"the changelog {topic} was deleted while this instance wrote to it: start the instance again;"
                        " it creates the topic and an empty store (changelog_auto_offset_reset)"
                    )

    async def _must_be_member(self) -> None:
        """Raise `TasksMigrated` if the group continued without this instance."""
        try:
            await self._consumer.check_membership()
        except KafkaError as error:
            if error.code not in LOST_MEMBERSHIP:
                raise
            raise TasksMigrated(str(error)) from error

    async def _begin(self) -> Producer:
        assert self._producer is not None, "the committer is not started"
        if not self._open and self.exactly_once:
            await self._producer.begin_transaction()
        self._open = True
        return self._producer

    async def _end(self, producer: Producer) -> None:
        """Commit. Without a response the outcome is unknown: repeating the request returns it."""
        for attempt in range(COMMIT_ATTEMPTS):
            try:
                await producer.commit_transaction()
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT or attempt == COMMIT_ATTEMPTS - 1:
                    raise
                log.warning("the outcome of the transaction commit is unknown: %s", error)
            else:
                return

    async def _send_offsets(
        self, producer: Producer, offsets: Mapping[TopicPartition, int], member: ConsumerGroupMetadata | None
    ) -> None:
        if member is not None:
            await producer.flush()
        await producer.send_offsets_to_transaction(offsets, member or self._consumer.group_metadata())

    async def _store_in_transaction(self, producer: Producer, commit: Commit) -> list[Delivery]:
        deliveries = await self._handovers.write(producer, commit.departures)
        written = await self._log_changes(producer, commit.tasks)
        if commit.offsets:
            await self._send_offsets(producer, commit.offsets, commit.member)
        await producer.flush()
        # The producer moves refused batches to a changelog that was created again meanwhile.
        await self._check_changelogs(producer, commit.tasks)
        await self._end(producer)
        self._settle(commit.tasks, written, transactional=True)
        return deliveries

    async def _log_changes(self, producer: Producer, tasks: Sequence[Task]) -> list[_Logged]:
        logged: list[_Logged] = []
        for task in tasks:
            receipts: dict[str, list[asyncio.Future[RecordMetadata]]] = {}
            for name, store in task.stores.items():
                topic, rows = changelog_topic(self._application_id, name), []
                logged_marks = {} if store.log_marks else task.state_manager.disk.marks(name)
                marks = store.marks.items() - logged_marks.items()
                if store.changes or marks:
                    # Another instance may have added partitions to the topic, and handed over this task's initial
                    # state.
                    await producer.wait_for_partitions(topic, 1 + task.id.partition)
                for key, row in store.changes.items():
                    value, timestamp_ms = store.logged(row)
                    rows.append(
                        await producer.send(topic, value, key, partition=task.id.partition, timestamp_ms=timestamp_ms)
                    )
                for key, mark in marks:
                    rows.append(
                        await producer.send(topic, mark, key, partition=task.id.partition, headers=MARK_HEADERS)
                    )
                if not self.exactly_once:
                    # The first failure ends the commit, and nothing else looks at the others.
                    for receipt in rows:
                        receipt.add_done_callback(_retrieve_exception)
                if rows:
                    receipts[name] = rows
            logged.append(receipts)
        return logged

    async def _check_changelogs(self, producer: Producer, tasks: Sequence[Task]) -> None:
        """Raise `AbortableError` if a changelog was created again: the tasks then begin with what it has."""
        for task, name in await self._recreated(producer, tasks):
            topic = changelog_topic(self._application_id, name)
            raise AbortableError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{topic} was deleted and created again ({task.id} was restored before)",
            )

    async def _recreated(self, producer: Producer, tasks: Sequence[Task]) -> list[tuple[Task, str]]:
        """Return the stores whose changelog is not the topic any more from which they were restored.

        The producer writes to the topic of its metadata. These may also be older than the store.
        """
        topics = producer.metadata.topics
        found: list[tuple[Task, str]] = []
        for task in tasks:
            for name, store in task.stores.items():
                topic = topics.get(changelog_topic(self._application_id, name))
                known = b"" if topic is None else topic.topic_id
                if store.topic_id != known and not {store.topic_id, known} & UNKNOWN_TOPIC_ID:
                    found.append((task, name))
        if not found:
            return []
        present = await self._topics.topic_ids({changelog_topic(self._application_id, name) for _, name in found})
        return [
            (task, name)
            for task, name in found
            if present.get(changelog_topic(self._application_id, name)) != task.stores[name].topic_id
        ]

    async def _hand_over_apart(self, commit: Commit) -> list[Delivery]:
        """Hand over in transactions, although commits are not."""
        if not commit.departures:
            return []
        producer = await self._connect(f"{self._transactional_id}-handover")
        try:
            await producer.begin_transaction()
            return await self._store_in_transaction(producer, commit)
        finally:
            await producer.stop()

    def _settle(self, tasks: Sequence[Task], logged: Sequence[_Logged], *, transactional: bool) -> None:
        for task, receipts in zip(tasks, logged, strict=True):
            if receipts:
                offsets = {name: [row.result().offset for row in rows] for name, rows in receipts.items()}
                task.on_committed(offsets, transactional=transactional)


def _retrieve_exception(receipt: asyncio.Future[RecordMetadata]) -> None:
    if not receipt.cancelled():
        receipt.exception()
