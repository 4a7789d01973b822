"""The applications of a simulation: producers, members of one group, and a client that resizes the topic.

They use the public clients, treat them as applications do (a client that raises is thrown away and made anew), and
record what they asked and what they heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, Final

from anabranch import Admin, Consumer, NewTopic, PartitionKeyRebalanceListener, Producer
from anabranch.clients.consumer.assignors import ASSIGNORS
from anabranch.clients.metadata import Topic
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition
from tests.sim.cluster import SimCluster
from tests.sim.history import Callback, Commit, Delivery, Died, ReadStart, Send
from tests.sim.loop import Process

TOPIC: Final = "t"
GROUP: Final = "g"
CLIENT_FAILURES: Final = (KafkaError, ConnectionError, TimeoutError)
EAGER: Final = tuple(ASSIGNORS)
COOPERATIVE: Final = ("cooperative-sticky",)
SLOW: Final = 0.02
FENCED_S: Final = 3.0
"""How long an application leaves its place to the instance that has replaced it."""
NEVER_STORED: Final = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.POLICY_VIOLATION}
)


class Application(ABC):
    """A client process that a fault can kill, and that is then replaced by another."""

    def __init__(self, cluster: SimCluster, name: str) -> None:
        self.cluster = cluster
        self.history = cluster.history
        self.name = name
        self.life = 0
        self.process: Process | None = None
        self.stopping = False
        self.task: asyncio.Task[Any] | None = None
        self.rng = cluster.rng(f"client-{name}")
        self.skew_ms = 0
        cluster.applications[name] = self

    @property
    def identity(self) -> str:
        return f"{self.name}.{self.life}"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        if self.alive:
            return
        self.life += 1
        self.process = Process(self.identity, self.name)
        self.task = self.cluster.loop.spawn(self.process, self.run(), self.identity)

    def kill(self) -> None:
        assert self.process is not None
        self.history.died.append(Died(self.history.tick(), self.identity))
        self.cluster.fired["client killed"] += 1
        self.cluster.loop.kill(self.process)
        self.cluster.network.process_died(self.process, silently=False)

    @property
    def host(self) -> str:
        return self.name

    def clock_ms(self) -> int:
        """This client's wall clock."""
        return self.cluster.loop.time_of_day_ms() + self.skew_ms

    def tell(self, line: str) -> None:
        self.cluster.tell(f"{self.identity}: {line}")

    @abstractmethod
    async def run(self) -> None:
        """What the application does, until it is killed or told to stop."""

    def chance(self, purpose: str) -> random.Random:
        return self.cluster.rng(f"client-{self.identity}-{purpose}")


class Writer(Application):
    """Sends keyed records, idempotently and with acks=all, at a moderate rate."""

    topic = TOPIC

    def __init__(self, cluster: SimCluster, name: str, *, keys: int, pause_s: float) -> None:
        super().__init__(cluster, name)
        self.keys = [f"k{number}" for number in range(keys)]
        self.pause_s = pause_s
        self.outstanding = 0
        self._sequences: dict[tuple[str, str], int] = {}

    async def run(self) -> None:
        while not self.stopping:
            producer = Producer(
                self.cluster.bootstrap,
                client_id=self.identity,
                linger_ms=self.rng.choice((0, 5, 30)),
                batch_bytes=self.rng.choice((200, 1000, 16384)),
                request_timeout_ms=1500,
                delivery_timeout_ms=25000,
                max_block_ms=60000,
                metadata_max_age_ms=4000,
                rng=self.chance("producer"),
            )
            try:
                await producer.start()
            except CLIENT_FAILURES as error:
                self.tell(f"cannot start: {error}")
                await asyncio.sleep(0.5)
                continue
            while not self.stopping:
                for _ in range(self.rng.choice((1, 1, 2, 5))):
                    await self._send(producer)
                await asyncio.sleep(self.pause_s * self.rng.random() * 2)
            await producer.stop()

    async def _send(self, producer: Producer) -> None:
        key = self.rng.choice(self.keys)
        of_key = (self.identity, key)
        sequence = self._sequences.get(of_key, 0)
        value = f"{self.identity}/{key}/{sequence}"
        send = Send(self.history.tick(), self.identity, key, sequence, value)
        try:
            receipt = await producer.send(self.topic, value.encode(), key.encode(), timestamp_ms=self.clock_ms())
        except KafkaError as error:
            self.tell(f"send refused: {error}")
            return
        self._sequences[of_key] = sequence + 1
        self.history.sends.append(send)
        self.outstanding += 1
        receipt.add_done_callback(lambda done: self._settled(send, done))

    def _settled(self, send: Send, receipt: asyncio.Future[RecordMetadata]) -> None:
        self.outstanding -= 1
        note_outcome(self, send, receipt)


def note_outcome(writer: Application, send: Send, receipt: asyncio.Future[RecordMetadata]) -> None:
    """Record the producer's final outcome of a record."""
    if receipt.cancelled():
        return
    error = receipt.exception()
    send.acked_order = writer.history.tick()
    if error is None:
        stored = receipt.result()
        send.outcome, send.place, send.offset = "ok", (stored.topic, stored.partition), stored.offset
    else:
        refused = isinstance(error, KafkaError) and error.code in NEVER_STORED
        send.outcome = "fail" if refused else "info"
        writer.tell(f"{send.value} failed: {error}")


class _Listener(PartitionKeyRebalanceListener):
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._reader.called_back("revoked", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._reader.called_back("lost", partitions)

    async def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(self._reader.rng.random() * self._reader.flush_s)
        self._reader.called_back("revoked", partitions)

    async def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._reader.called_back("assigned", partitions)


class Reader(Application):
    """One member of the group; commits automatically, and takes its time now and then."""

    def __init__(
        self,
        cluster: SimCluster,
        name: str,
        *,
        flush_s: float = 0.05,
        commit_intervals_ms: tuple[int, ...] = (200, 700),
        strategy: Sequence[str] = EAGER,
        slow: float = SLOW,
        protocol: str = "classic",
        group: str = GROUP,
        rebalance_timeout_ms: int = 3000,
        metadata_max_age_ms: int = 3000,
    ) -> None:
        super().__init__(cluster, name)
        self.group = group
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = 2000
        self.request_timeout_ms = 2500
        self.instance_id: str | None = None
        """The name of a static member, which its successors have, too."""
        self.metadata_max_age_ms = metadata_max_age_ms
        self.has_gates = True
        """Whether it is this project's consumer. Without, it reads what it is assigned as stock consumers do."""
        self.slow = slow
        self.protocol = protocol
        self.flush_s = flush_s
        self.commit_intervals_ms = commit_intervals_ms
        self.strategy = strategy
        self.consumer: Consumer | None = None
        self.runs: dict[tuple[str, int], int] = {}
        self.block_s = 0.0
        """For how long to do nothing, as soon as there are records at hand that the application has not been given."""
        self.blocked = False
        self.woken = asyncio.Event()
        """Ends that."""

    async def run(self) -> None:
        while not self.stopping:
            consumer = self.consumer = self._make()
            try:
                await consumer.start()
                while not self.stopping:
                    await self._poll(consumer)
            except CLIENT_FAILURES as error:
                self.tell(f"starts over: {error}")
                if isinstance(error, KafkaError) and error.code is ErrorCode.FENCED_INSTANCE_ID:
                    self.cluster.fired["static member fenced"] += 1
                    await asyncio.sleep(FENCED_S)
            try:
                await consumer.stop()
            except CLIENT_FAILURES as error:
                self.tell(f"stopped with {error}")
            if not self.stopping:
                self.history.died.append(Died(self.history.tick(), self.identity))
                self.life += 1
                await asyncio.sleep(0.2)

    def _make(self) -> Consumer:
        if self.instance_id is not None:
            self.history.instances[self.identity] = self.instance_id
        consumer = Consumer(
            TOPIC,
            bootstrap_servers=self.cluster.bootstrap,
            client_id=self.identity,
            group_id=self.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=self.rng.choice(self.commit_intervals_ms),
            session_timeout_ms=self.session_timeout_ms,
            group_instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            heartbeat_interval_ms=300,
            max_poll_records=self.rng.choice((1, 7, 500)),
            fetch_max_wait_ms=300,
            request_timeout_ms=self.request_timeout_ms,
            metadata_max_age_ms=self.metadata_max_age_ms,
            partition_assignment_strategy=self.strategy,
            group_protocol=self.protocol,
            ordered_delivery=self.has_gates,
            listener=_Listener(self),
            clock_ms=self.clock_ms,
            rng=self.chance("consumer"),
        )
        membership = consumer._core.membership
        assert membership is not None
        membership.holds_gates = self.has_gates
        return consumer

    def kill(self) -> None:
        super().kill()
        self.cluster.fired["member of the group killed"] += 1

    async def _poll(self, consumer: Consumer) -> None:
        if self.block_s:
            await asyncio.sleep(0.3)  # meanwhile records come
        taken = await consumer.getmany(timeout_ms=500, max_records=1 if self.block_s else None)
        generation = self.group_generation
        for partition, records in taken.items():
            place = (partition.topic, partition.partition)
            for record in records:
                self.history.deliveries.append(
                    Delivery(
                        self.history.tick(),
                        self.identity,
                        self.runs.get(place, 0),
                        place,
                        record.offset,
                        (record.key or b"").decode(),
                        (record.value or b"").decode(),
                        record.generation,
                        generation,
                    )
                )
        if self.block_s and self.at_hand:
            self.blocked = True
            self.woken.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.woken.wait(), self.block_s)
            self.blocked, self.block_s = False, 0.0
        elif self.rng.random() < self.slow:
            await asyncio.sleep(self.rng.random() * 2)  # a slow application

    @property
    def protocol_names(self) -> set[str]:
        """Its protocol, and whether it is a static member."""
        named = "cooperative" if self.strategy == COOPERATIVE else "eager"
        kind = named if self.protocol == "classic" else self.protocol
        return {kind if self.has_gates else "stock"} | ({"static"} if self.instance_id else set())

    @property
    def at_hand(self) -> set[tuple[str, int]]:
        """The partitions with fetched, undelivered records."""
        rows = () if self.consumer is None else self.consumer._core.assignment
        return {(one.partition.topic, one.partition.partition) for one in rows if one.buffered}

    @property
    def group_generation(self) -> int:
        """The generation in which the consumer was given what it reads.

        Not the one that it joins meanwhile: if the coordinator dies before that is complete, there will be another one
        of its number.
        """
        return -1 if self.consumer is None else self.consumer.generation

    def begin(self, place: tuple[str, int], offset: int) -> None:
        """The consumer will read a partition from here on."""
        run = self.runs[place] = self.runs.get(place, 0) + 1
        self.history.read_starts.append(
            ReadStart(self.history.tick(), self.identity, run, place, offset, self.group_generation)
        )

    def committing(self, offsets: dict[tuple[str, int], int], generation: int) -> Commit:
        """The consumer asks for a commit."""
        row = Commit(self.history.tick(), self.identity, offsets, generation)
        self.history.commits.append(row)
        return row

    def called_back(self, kind: Any, partitions: Collection[TopicPartition]) -> None:
        places = tuple((tp.topic, tp.partition) for tp in sorted(partitions))
        self.history.callbacks.append(Callback(self.history.tick(), self.identity, kind, places))


class Operator(Application):
    """Creates a topic, and resizes it to one count after another."""

    def __init__(
        self, cluster: SimCluster, counts: list[int], *, pause_s: float, topic: str = TOPIC, name: str = "operator"
    ) -> None:
        super().__init__(cluster, name)
        self.topic = topic
        self.configs: dict[str, str] = {}
        self.counts = counts
        self.pause_s = pause_s
        self.resized = 0

    async def create(self) -> None:
        self.life += 1
        self.process = Process(self.identity, self.name)
        await self.cluster.loop.spawn(self.process, self._create(), "create topic")
        self.process = None

    async def _create(self) -> None:
        async with self._admin() as admin:
            topic = NewTopic(
                name=self.topic, partitions=self.counts[0], replication_factor=3, configs=dict(self.configs)
            )
            await admin.create_topics([topic])
            await admin.wait_for_topic(self.topic, replicas=3)

    def _admin(self) -> Admin:
        return Admin(self.cluster.bootstrap, request_timeout_ms=4000, rng=self.chance("admin"))

    async def run(self) -> None:
        for count in self.counts[1:]:
            await asyncio.sleep(self.pause_s * (0.5 + self.rng.random()))
            await self.resize(count)

    def is_done(self, topic: Topic, count: int) -> bool:
        """Whether there are so many; a broker that lags behind may show a time when there were."""
        return topic.live == tuple(range(count))

    async def resize(self, count: int) -> None:
        """Insist until there are so many."""
        while not self.stopping:
            try:
                async with self._admin() as admin:
                    if self.is_done(await admin.describe_topic(self.topic), count):
                        break
                    await admin.create_partitions(self.topic, count, allow_shrink=True)
                break
            except CLIENT_FAILURES as error:
                self.tell(f"resize to {count}: {error}")
                await asyncio.sleep(0.3)
        self.resized += 1
        self.tell(f"resized to {count}")
