"""Copiers in a chaos run: a group that copies each record exactly once, and the check of its copies.

A copier reads the resized topic, and writes its records to a topic that is not resized, in a transaction with their
offsets (KIP-98, KIP-447). Some transactions are aborted, and some copiers crash in one. At the end all committed copies
are read: each acknowledged record has one, none has two, and those of a key are in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from anabranch import AbortableError, Admin, Consumer, FatalError, Producer
from anabranch.chaos.clients import CLIENT_FAILURES, MEMBER, STOP_TIMEOUT_S, TOPIC, ended
from anabranch.chaos.history import Place, Send
from anabranch.chaos.output_topic import OutputTopic, judge_outputs
from anabranch.chaos.side_topic import has_committed
from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.security import SecurityArguments
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

COPIES: Final = "copies"
GROUP: Final = "copiers"
ABORTED: Final = 0.1
"""The part of transactions that a copier aborts."""
TRANSACTION_TIMEOUT_MS: Final = 15_000
FAILURES: Final = (*CLIENT_FAILURES, AbortableError, FatalError)
Batch = dict[TopicPartition, list[ConsumerRecord]]


class Copier:
    """One member, over all its incarnations."""

    def __init__(self, name: str, servers: str, rng: random.Random, *, access: SecurityArguments) -> None:
        self.name = name
        self.life = 0
        self.stopping = False
        self.committed = 0
        self.aborted = 0
        self._servers = servers
        self._rng = rng
        self._access = access
        self._clients: tuple[Producer, Consumer] | None = None
        """None unless it copies."""
        self._copying: asyncio.Task[None] | None = None

    @property
    def identity(self) -> str:
        """The name of this incarnation of the member."""
        return f"{self.name}.{self.life}"

    async def run(self) -> None:
        """Copy until stopped."""
        while not self.stopping:
            self.life += 1
            clients = self._make()
            self._copying = asyncio.create_task(self._copy_until_failure(*clients), name=self.identity)
            await ended(self._copying)
            self._clients = None
            for one in clients:
                with contextlib.suppress(*FAILURES):
                    async with asyncio.timeout(STOP_TIMEOUT_S):
                        await one.stop()
            if not self.stopping:
                await asyncio.sleep(0.2)

    async def crash(self) -> bool:
        """Crash, perhaps in a transaction, and rejoin as a new member. Returns False if it does not copy now."""
        clients, self._clients = self._clients, None
        if clients is None or self._copying is None or not self._copying.cancel():
            return False
        for one in clients:
            await one._network.close()  # pending requests are lost
        return True

    def _make(self) -> tuple[Producer, Consumer]:
        producer = Producer(
            self._servers,
            client_id=self.identity,
            transactional_id=self.name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            delivery_timeout_ms=10_000,
            request_timeout_ms=5000,
            **self._access,
        )
        consumer = Consumer(
            TOPIC,
            bootstrap_servers=self._servers,
            client_id=self.identity,
            group_id=GROUP,
            isolation_level="read_committed",
            enable_auto_commit=False,
            **MEMBER,
            **self._access,
        )
        return producer, consumer

    async def _copy_until_failure(self, producer: Producer, consumer: Consumer) -> None:
        try:
            await producer.start()
            await consumer.start()
            self._clients = producer, consumer
            while not self.stopping:
                batch = await consumer.getmany(timeout_ms=500)
                if batch:
                    await self._copy(producer, consumer, batch)
        except FAILURES as error:
            log.info("%s starts over: %s", self.identity, error)

    async def _copy(self, producer: Producer, consumer: Consumer, batch: Batch) -> None:
        group = consumer.group_metadata()
        await producer.begin_transaction()
        try:
            for records in batch.values():
                for one in records:
                    await producer.send(COPIES, one.value, one.key)
            await producer.send_offsets_to_transaction(
                {partition: records[-1].offset + 1 for partition, records in batch.items()}, group
            )
            if self._rng.random() >= ABORTED:
                await producer.commit_transaction()
                self.committed += 1
                return
        except AbortableError as error:
            log.info("%s aborts: %s", self.identity, error)
        await producer.abort_transaction()
        self.aborted += 1
        for partition, records in batch.items():
            if partition in consumer.assignment():
                consumer.seek(partition, records[0].offset)


class CopiedTopic:
    """The topic of copies, and its copiers."""

    awaited = "every record is copied"

    def __init__(
        self, servers: str, chance: Callable[[str], random.Random], *, members: int, access: SecurityArguments
    ) -> None:
        self.crashed = 0
        self.output = OutputTopic(COPIES, servers, access=access)
        self._copiers = [Copier(f"c{one}", servers, chance(f"c{one}"), access=access) for one in range(members)]
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self, admin: Admin) -> list[asyncio.Task[None]]:
        """Create the topic, and start all copiers; a task that ends early has failed."""
        await self.output.create(admin)
        self._tasks = [asyncio.create_task(one.run(), name=one.name) for one in self._copiers]
        return list(self._tasks)

    async def crash(self, rng: random.Random) -> str | None:
        """Crash a copier."""
        one = rng.choice(self._copiers)
        if not await one.crash():
            return None
        self.crashed += 1
        return one.identity

    def end_of_faults(self) -> None:
        """Nothing: the copiers go on."""

    async def done(self, admin: Admin, ends: Mapping[Place, int]) -> bool:
        """Whether the copiers have committed all that is acknowledged."""
        return await has_committed(admin, GROUP, ends)

    async def stop(self) -> None:
        """End all copiers."""
        for one in self._copiers:
            one.stopping = True
        _, late = await asyncio.wait(self._tasks, timeout=STOP_TIMEOUT_S) if self._tasks else (set(), set())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def failures(self) -> list[str]:
        """Read all committed copies; return why they cannot be read, if so."""
        return await self.output.read()

    def judge(self, sends: Sequence[Send]) -> Iterator[str]:
        """Yield every violation."""
        return judge_outputs(COPIES, self.output.rows, sends)

    def summary(self) -> str:
        """Summarize the group in one line."""
        committed, aborted = (sum(getattr(one, name) for one in self._copiers) for name in ("committed", "aborted"))
        return (
            f"{GROUP}: {len(self.output.rows)} copies in {committed} transactions, {aborted} aborted, "
            f"{self.crashed} copiers crashed"
        )
