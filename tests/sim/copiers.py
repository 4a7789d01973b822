"""Copiers and an auditor: transactions in a simulation.

A copier consumes committed records of two topics, writes one copy of each to the second in a transaction together with
its offsets, and commits or aborts. First copies are copied once more, so that transactions read what transactions
wrote. The auditor reads the second topic, committed records only, from its start to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from anabranch import AbortableError, Consumer, FatalError, Producer
from anabranch.chaos.checkers.transactions import COPIERS
from anabranch.chaos.transaction_events import CommittedRead, Copy, ProducerInitialized, Transaction
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.protocol.topic_partition import TopicPartition
from tests.sim.clients import CLIENT_FAILURES, EAGER, TOPIC, Application
from tests.sim.cluster import SimCluster
from tests.sim.history import Commit, History, Place
from tests.sim.loop import Process

OUT: Final = "out"
TRANSACTION_TIMEOUT_MS: Final = 5000
Batch = dict[TopicPartition, list[ConsumerRecord]]


class CommittedReader(Application):
    """A reader of committed records; the probes ask for its start offset."""

    def __init__(self, cluster: SimCluster, name: str) -> None:
        super().__init__(cluster, name)
        self.consumer: Consumer | None = None
        self.runs: dict[tuple[str, int], int] = {}

    def begin(self, place: tuple[str, int], offset: int) -> None:
        """The consumer will read a partition from here on: another run."""
        self.runs[place] = self.runs.get(place, 0) + 1

    def committing(self, offsets: dict[tuple[str, int], int], generation: int) -> Commit:
        """The consumer commits on its own, at the end of a key epoch or at a start."""
        row = Commit(self.history.tick(), self.identity, offsets, generation)
        self.history.copiers_commits.append(row)
        return row

    def note(self, batch: Batch, reader: str, transaction: str = "") -> None:
        """Record what was read."""
        for partition, records in batch.items():
            place = (partition.topic, partition.partition)
            if partition.topic != OUT:
                continue
            for record in records:
                value = (record.value or b"").decode()
                run = self.runs.get(place, 0)
                self.history.committed_reads.append(
                    CommittedRead(self.history.tick(), reader, run, place, record.offset, value, transaction)
                )

    def make_consumer(self, *topics: str, group: str | None, purpose: str, strategy: Sequence[str] = EAGER) -> Consumer:
        return Consumer(
            *topics,
            bootstrap_servers=self.cluster.bootstrap,
            client_id=self.identity,
            group_id=group,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            session_timeout_ms=2000,
            rebalance_timeout_ms=3000,
            heartbeat_interval_ms=300,
            max_poll_records=self.rng.choice((7, 20, 100)),
            fetch_max_wait_ms=300,
            request_timeout_ms=2500,
            metadata_max_age_ms=3000,
            partition_assignment_strategy=strategy,
            clock_ms=self.clock_ms,
            rng=self.chance(purpose),
        )


class Copier(CommittedReader):
    """Copies exactly once, with a transactional id of its own."""

    def __init__(
        self,
        cluster: SimCluster,
        name: str,
        *,
        aborts: float,
        delivery_timeout_ms: int = 8000,
        strategy: Sequence[str] = EAGER,
    ) -> None:
        super().__init__(cluster, name)
        self.aborts = aborts
        self.strategy = strategy
        self.delivery_timeout_ms = delivery_timeout_ms
        self._lives: list[tuple[Process, asyncio.Task[Any]]] = []

    def start(self) -> None:
        super().start()
        if self.process is not None and self.task is not None:
            self._lives.append((self.process, self.task))

    def replace(self) -> Process | None:
        """Start a successor beside a process that does not answer, as a supervisor would. Returns the old one."""
        old, self.process = self.process, None
        self.start()
        return old

    @property
    def settled(self) -> bool:
        """Whether every life of it has come to its end, one way or the other."""
        return all(task.done() or not process.alive for process, task in self._lives)

    async def run(self) -> None:
        life, attempt = self.life, 0
        while not self.stopping:
            attempt += 1
            name = f"{self.identity}.{attempt}" if life == self.life else f"{self.name}.{life}.{attempt}"
            try:
                await _CopierRun(self, name).run()
            except FatalError as error:
                self.tell(f"{name} is fenced: {error}")
                if life != self.life:
                    return
            except CLIENT_FAILURES as error:
                self.tell(f"{name} starts over: {error}")
            await asyncio.sleep(0.2)


class _CopierRun:
    """One producer and one consumer of a copier, until something breaks."""

    def __init__(self, copier: Copier, name: str) -> None:
        self._copier = copier
        self._cluster, self._history, self._rng = copier.cluster, copier.history, copier.rng
        self._name = name
        self._number = 0
        self._producer = Producer(
            copier.cluster.bootstrap,
            client_id=name,
            transactional_id=copier.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=self._rng.choice((0, 5)),
            batch_bytes=self._rng.choice((200, 1000)),
            request_timeout_ms=1500,
            delivery_timeout_ms=copier.delivery_timeout_ms,
            max_block_ms=8000,
            metadata_max_age_ms=4000,
            clock_ms=copier.clock_ms,
            rng=copier.cluster.rng(f"client-{name}-producer"),
        )
        self._consumer = copier.consumer = copier.make_consumer(
            TOPIC, OUT, group=COPIERS, purpose=f"consumer-{name}", strategy=copier.strategy
        )

    async def run(self) -> None:
        copier = self._copier
        try:
            await self._producer.start()
            numbers = self._producer._accumulator.numbering.transactions
            assert numbers is not None
            initialized = ProducerInitialized(self._history.tick(), copier.name, self._name, numbers.producer_epoch)
            self._history.producers.append(initialized)
            await self._consumer.start()
            while not copier.stopping:
                batch = await self._consumer.getmany(timeout_ms=400)
                if batch:
                    await self._copy(batch, self._consumer.group_metadata())
        finally:
            for client in (self._producer, self._consumer):
                with contextlib.suppress(*CLIENT_FAILURES):
                    await client.stop()

    async def _copy(self, batch: Batch, group: ConsumerGroupMetadata) -> None:
        self._number += 1
        row = Transaction(
            self._history.tick(),
            f"{self._name}.{self._number}",
            self._copier.name,
            self._name,
            offsets={(one.topic, one.partition): rows[-1].offset + 1 for one, rows in batch.items()},
            group_generation=group.generation_id,
        )
        self._copier.note(batch, self._name, row.name)
        await self._producer.begin_transaction()
        self._history.transactions.append(row)
        try:
            await self._write(row, batch, group)
            if self._rng.random() < self._copier.aborts:
                await self._abort(row, batch)
            else:
                row.requested_end, row.end_order = "commit", self._history.tick()
                await self._producer.commit_transaction()
                row.outcome, row.ended_order = "ok", self._history.tick()
        except AbortableError as error:
            self._copier.tell(f"{row.name}: {error}")
            await self._abort(row, batch)

    async def _write(self, row: Transaction, batch: Batch, group: ConsumerGroupMetadata) -> None:
        for partition, records in batch.items():
            for record in records:
                source, key = (record.value or b"").decode(), (record.key or b"").decode()
                if partition.topic == OUT and not source.startswith("1|"):
                    continue
                hop = "1" if partition.topic == TOPIC else "2"
                copy = Copy(f"{hop}|{row.name}|{source}", source, key, final=hop == "2")
                await self._producer.send(OUT, copy.value.encode(), key.encode())
                row.copies.append(copy)
        if self._rng.random() < 0.2:
            await asyncio.sleep(self._rng.random())
        offsets = {TopicPartition(*place): offset for place, offset in row.offsets.items()}
        row.offsets_order = self._history.tick()
        await self._producer.send_offsets_to_transaction(offsets, group)
        row.offsets_accepted = True

    async def _abort(self, row: Transaction, batch: Batch) -> None:
        if not row.requested_end:
            row.requested_end, row.end_order = "abort", self._history.tick()
        await self._producer.abort_transaction()
        row.requested_end, row.outcome, row.ended_order = "abort", "ok", self._history.tick()
        for partition, records in batch.items():
            if partition in self._consumer.assignment():
                self._consumer.seek(partition, records[0].offset)


class Auditor(CommittedReader):
    """Reads what was committed, all of it, and from the start again whenever it starts over."""

    async def run(self) -> None:
        while not self.stopping:
            consumer = self.consumer = self.make_consumer(OUT, group=None, purpose="consumer")
            try:
                await consumer.start()
                while not self.stopping:
                    self.note(await consumer.getmany(timeout_ms=500), self.identity)
            except CLIENT_FAILURES as error:
                self.tell(f"starts over: {error}")
            with contextlib.suppress(*CLIENT_FAILURES):
                await consumer.stop()
            await asyncio.sleep(0.2)


def uncopied(history: History) -> list[str]:
    """Delivered records without an audited first copy and its copy."""
    read = {one.value for one in history.committed_reads if not one.transaction}
    copies = {copy.source: copy.value for one in history.transactions for copy in one.copies if copy.value in read}
    return sorted(
        value
        for value in {delivery.value for delivery in history.deliveries}
        if copies.get(copies.get(value, "")) is None
    )


def copied_offsets(history: History) -> dict[Place, int]:
    """How far the copiers are known to be: nothing before is needed any more."""
    done: dict[Place, int] = {}
    for one in history.transactions:
        if one.requested_end == "commit" and one.outcome == "ok":
            for place, offset in one.offsets.items():
                done[place] = max(offset, done.get(place, 0))
    return done
