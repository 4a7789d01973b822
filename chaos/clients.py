"""The applications of a chaos run: producers, members of one group, and an operator that resizes the topic.

They use the public clients as applications do (a client that raises is replaced by a new one) and record their requests
and the responses. All run in this process, so there is one order of events; the brokers are other processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from anabranch import Admin, Consumer, PartitionKeyRebalanceListener, Producer
from anabranch.chaos.history import Callback, Commit, Delivery, Died, History, Place, ReadStart, Send
from anabranch.clients.consumer.classic_group_session import ClassicGroupSession
from anabranch.clients.consumer.progress import PartitionProgress
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.clients.security import SecurityArguments
from anabranch.protocol.errors import KafkaError
from anabranch.protocol.topic_partition import TopicPartition

log = logging.getLogger(__name__)

TOPIC: Final = "orders"
GROUP: Final = "billing"
CLIENT_FAILURES: Final = (KafkaError, ConnectionError, TimeoutError)
STOP_TIMEOUT_S: Final = 60.0
MEMBER: Final[Mapping[str, Any]] = {
    "auto_offset_reset": "earliest",
    "auto_commit_interval_ms": 1000,
    "session_timeout_ms": 6000,
    "rebalance_timeout_ms": 8000,
    "heartbeat_interval_ms": 1000,
    "request_timeout_ms": 10000,
    "metadata_max_age_ms": 5000,
}
"""The settings of group members."""

_reader: ContextVar[Reader | None] = ContextVar("reader", default=None)


@dataclass
class Record:
    """Measurements of a run, beside the history that is judged. Times are of the loop's clock, in seconds."""

    history: History = field(default_factory=History)
    sent_s: dict[str, float] = field(default_factory=dict)
    acked_s: dict[str, float] = field(default_factory=dict)
    delivered_s: dict[str, float] = field(default_factory=dict)
    """Value -> its first delivery."""
    resizes: list[tuple[float, float, int]] = field(default_factory=list)
    """(time of the request, time of its publication, count) of each resize."""

    @property
    def outstanding(self) -> int:
        """The number of records neither acknowledged nor given up."""
        return len(self.sent_s) - len(self.acked_s)


class Writer:
    """Sends keyed, numbered records at a steady rate, idempotently and with acks=all."""

    def __init__(
        self,
        name: str,
        servers: str,
        record: Record,
        rng: random.Random,
        *,
        keys: int,
        rate: float,
        access: SecurityArguments,
        topic: str = TOPIC,
    ) -> None:
        self.name = name
        self._topic = topic
        self._servers = servers
        self._access = access
        self._record = record
        self._rng = rng
        self._keys = [f"{name}-k{number}" for number in range(keys)]
        self._rate = rate
        self._sequences: dict[str, int] = {}
        self.stopping = False

    async def run(self) -> None:
        """Send until stopped, then wait until all is acknowledged."""
        producer = Producer(
            self._servers,
            client_id=self.name,
            linger_ms=10,
            request_timeout_ms=5000,
            delivery_timeout_ms=600_000,
            max_block_ms=120_000,
            metadata_max_age_ms=5000,
            audit=True,
            **self._access,
        )
        await producer.start()
        loop = asyncio.get_running_loop()
        started_s, sent = loop.time(), 0
        while not self.stopping:
            due = int((loop.time() - started_s) * self._rate) + 1
            if due - sent > self._rate:  # do not catch up after a stall of the whole machine
                started_s, sent = loop.time(), 0
                continue
            while sent < due:
                sent += 1
                await self._send(producer)
            await asyncio.sleep(1 / self._rate)
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await producer.stop()

    async def _send(self, producer: Producer) -> None:
        history, loop = self._record.history, asyncio.get_running_loop()
        key = self._rng.choice(self._keys)
        sequence = self._sequences.get(key, 0)
        value = f"{key}/{sequence}"
        send = Send(history.tick(), self.name, key, sequence, value)
        started_s = loop.time()
        try:
            receipt = await producer.send(self._topic, value.encode(), key.encode())
        except CLIENT_FAILURES as error:
            log.warning("%s: send refused: %s", self.name, error)
            return
        self._sequences[key] = sequence + 1
        history.sends.append(send)
        self._record.sent_s[value] = started_s
        receipt.add_done_callback(lambda done: self._settled(send, done))

    def _settled(self, send: Send, receipt: asyncio.Future[RecordMetadata]) -> None:
        if receipt.cancelled():
            return
        self._record.acked_s[send.value] = asyncio.get_running_loop().time()
        send.acked_order = self._record.history.tick()
        error = receipt.exception()
        if error is None:
            stored = receipt.result()
            send.outcome, send.place, send.offset = "ok", (stored.topic, stored.partition), stored.offset
        else:
            log.warning("%s failed: %s", send.value, error)


class Reader(PartitionKeyRebalanceListener):
    """One member of the group; commits automatically."""

    def __init__(
        self, name: str, servers: str, record: Record, *, audit: str | None = None, access: SecurityArguments
    ) -> None:
        """Create a member; `audit`: the topic to which its deliveries are written; None for none."""
        self.name = name
        self.life = 0
        self.restarts = 0
        self.stopping = False
        self._servers = servers
        self._access = access
        self._record = record
        self._audit = audit
        self.consumer: Consumer | None = None
        self._runs: dict[Place, int] = {}
        self._leave = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    @property
    def identity(self) -> str:
        """The name of this incarnation of the member."""
        return f"{self.name}.{self.life}"

    async def run(self) -> None:
        """Read until stopped."""
        _reader.set(self)
        while not self.stopping:
            self.life += 1
            consumer = self.consumer = self._make()
            self._leave.clear()
            self._reading = asyncio.create_task(self._read(consumer), name=self.identity)
            await ended(self._reading)
            with contextlib.suppress(*CLIENT_FAILURES):
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await consumer.stop()
            if not self.stopping:
                await asyncio.sleep(0.2)

    async def _read(self, consumer: Consumer) -> None:
        try:
            await consumer.start()
            while not self.stopping and not self._leave.is_set():
                await self._poll(consumer)
        except CLIENT_FAILURES as error:
            self.restarts += 1
            self._died()
            log.info("%s starts over: %s", self.identity, error)

    def _died(self) -> None:
        self._record.history.died.append(Died(self._record.history.tick(), self.identity))

    def replace(self) -> None:
        """Leave the group, and join again as a new member."""
        self._leave.set()

    async def crash(self) -> bool:
        """Crash without leaving: the group notices when the member's session ends.

        Returns False if it had ended.
        """
        consumer = self.consumer
        if consumer is None or self._reading is None or self._reading.done() or self._leave.is_set():
            return False
        self._leave.set()
        self._reading.cancel()
        self._died()
        await consumer._network.close()  # pending requests are lost
        return True

    def _make(self) -> Consumer:
        return Consumer(
            TOPIC,
            bootstrap_servers=self._servers,
            client_id=self.identity,
            group_id=GROUP,
            listener=self,
            audit=self._audit,
            **MEMBER,
            **self._access,
        )

    async def _poll(self, consumer: Consumer) -> None:
        history, now = self._record.history, asyncio.get_running_loop().time
        for partition, records in (await consumer.getmany(timeout_ms=500)).items():
            place = (partition.topic, partition.partition)
            generation = self.group_generation
            for record in records:
                value = (record.value or b"").decode()
                self._record.delivered_s.setdefault(value, now())
                history.deliveries.append(
                    Delivery(
                        history.tick(),
                        self.identity,
                        self._runs.get(place, 0),
                        place,
                        record.offset,
                        (record.key or b"").decode(),
                        value,
                        record.generation,
                        generation,
                    )
                )

    @property
    def group_generation(self) -> int:
        """The generation of the consumer's current assignment; not the one that it joins meanwhile."""
        return -1 if self.consumer is None else self.consumer.generation

    # --- hooks into the client

    def begin(self, place: Place, offset: int) -> None:
        """Note that the consumer starts to read a partition."""
        run = self._runs[place] = self._runs.get(place, 0) + 1
        history = self._record.history
        history.read_starts.append(ReadStart(history.tick(), self.identity, run, place, offset, self.group_generation))

    @contextlib.contextmanager
    def committing(self, offsets: Mapping[Place, int], generation: int) -> Iterator[None]:
        """Note a commit before its request, and whether it succeeded."""
        history = self._record.history
        row = Commit(history.tick(), self.identity, offsets, generation)
        history.commits.append(row)
        try:
            yield
        except KafkaError as error:
            row.outcome = "info" if error.code.retriable else "fail"
            raise
        row.outcome, row.acked_order = "ok", history.tick()

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Note that whole partitions are revoked: the state of their keys is flushed."""
        self._called_back("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Note that the group went on without this member."""
        self._called_back("lost", partitions)

    def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Note that keys may be revoked."""
        self._called_back("revoked", partitions)

    def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Note that keys are assigned."""
        self._called_back("assigned", partitions)

    def _called_back(
        self, kind: Literal["revoked", "lost", "assigned"], partitions: Collection[TopicPartition]
    ) -> None:
        places = tuple((one.topic, one.partition) for one in sorted(partitions))
        history = self._record.history
        history.callbacks.append(Callback(history.tick(), self.identity, kind, places))


@contextlib.contextmanager
def watching() -> Iterator[None]:
    """Hook into consumers, to note starting positions and commits, which the public interface does not show."""
    seek, commit = PartitionProgress.seek, ClassicGroupSession.commit

    def seen_seek(progress: PartitionProgress, offset: int) -> None:
        seek(progress, offset)
        reader = _reader.get()
        if reader is not None:
            reader.begin((progress.partition.topic, progress.partition.partition), offset)

    async def seen_commit(
        session: ClassicGroupSession,
        offsets: Mapping[TopicPartition, int],
        check_owned: Callable[[], None],
        topic_ids: Mapping[str, bytes],
    ) -> None:
        reader = _reader.get()
        if reader is None or not offsets:
            await commit(session, offsets, check_owned, topic_ids)
            return
        places = {(one.topic, one.partition): offset for one, offset in sorted(offsets.items())}
        with reader.committing(places, session.membership.generation):
            await commit(session, offsets, check_owned, topic_ids)

    PartitionProgress.seek = seen_seek  # type: ignore[method-assign,assignment]
    ClassicGroupSession.commit = seen_commit  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        PartitionProgress.seek = seek  # type: ignore[method-assign]
        ClassicGroupSession.commit = commit  # type: ignore[method-assign]


class Operator:
    """Resizes the topic to one count after another."""

    def __init__(
        self, servers: str, record: Record, rng: random.Random, *, pause_s: float, access: SecurityArguments
    ) -> None:
        self._servers = servers
        self._access = access
        self._record = record
        self._rng = rng
        self._pause_s = pause_s
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Start no more resizes."""
        self._stop.set()

    async def run(self, choose: Callable[[int], int]) -> None:
        """Resize at random times until stopped; a started resize is completed."""
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s * (0.5 + self._rng.random())):
                    await self._stop.wait()
                    return
            await self.resize(choose(self._record.resizes[-1][2] if self._record.resizes else 0))

    async def resize(self, count: int) -> None:
        """Resize the topic, and record it."""
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        await resize_topic(self._servers, TOPIC, count, self._access)
        self._record.resizes.append((started_s, loop.time(), count))


async def resize_topic(servers: str, topic: str, count: int, access: SecurityArguments) -> None:
    """Resize a topic, retrying until it has `count` partitions."""
    while True:
        try:
            async with Admin(servers, request_timeout_ms=15000, **access) as admin:
                if (await admin.describe_topic(topic)).live != tuple(range(count)):
                    await admin.create_partitions(topic, count, allow_shrink=True)
            return
        except CLIENT_FAILURES as error:
            log.info("resize to %d: %s", count, error)
            await asyncio.sleep(0.3)


async def ended(incarnation: asyncio.Task[None]) -> None:
    """Wait until an incarnation of a member has ended or crashed. Raises its error if that is a bug."""
    try:
        await asyncio.wait([incarnation])
    finally:
        incarnation.cancel()
    if not incarnation.cancelled():
        incarnation.result()
