"""A group of consumers under observation, against a real cluster in this process.

One loop runs everybody, so one list of events is the order in which things happened. What is judged
(docs/resize.md):

    I4    a record is not handed out when a later one of its key is behind the group in another partition
    I4'   ... and when it is handed out, what came before it in other partitions is committed
    I5    on_partition_key_maybe_revoked of a key epoch ends before on_partition_key_assigned of one that waits for it
    I12   everything sent is handed out
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from anabranch import Admin, Consumer, ConsumerRecord, NewTopic, PartitionKeyRebalanceListener, Producer, TopicPartition
from anabranch.clients.network import Network
from anabranch.cluster.in_process import Cluster
from anabranch.protocol import audit_mark
from anabranch.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.lineage import KeyEpoch, Lineage

GROUP = "readers"
TOPIC = "t"


@asynccontextmanager
async def cluster_and_admin(
    *, brokers: int = 3, timeout_s: float = 120, **properties: str
) -> AsyncIterator[tuple[Cluster, Admin]]:
    patient = {"offsets_commit_timeout_ms": "60000"}
    settings = {name.replace("_", "."): value for name, value in (patient | properties).items()}
    async with (
        asyncio.timeout(timeout_s),
        Cluster(brokers=brokers, seed=1, properties=settings) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        yield cluster, admin


async def make_topic(admin: Admin, partitions: int, name: str = TOPIC, replicas: int = 1, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    await admin.create_topics(
        [NewTopic(name=name, partitions=partitions, replication_factor=replicas, configs=settings)]
    )
    await admin.wait_for_topic(name, replicas=replicas)


async def resize(admin: Admin, count: int, name: str = TOPIC) -> None:
    """Resize and wait until the cluster shows it."""
    generation = (await admin.describe_topic(name)).generation
    await admin.create_partitions(name, count, allow_shrink=True)
    await admin.wait_for_generation(name, generation + 1)


async def send(producer: Producer, admin: Admin, count: int, *, keys: int = 16, name: str = TOPIC) -> None:
    """Send and wait; by the newest hashing."""
    generation = (await admin.describe_topic(name)).generation
    await producer.send_and_wait(name, b"first of some", b"key-0")
    while producer.generation(name) < generation:
        producer._network.request_refresh()
        await asyncio.sleep(0.005)
    for number in range(count - 1):
        await producer.send(name, b"%d" % number, b"key-%d" % (number % keys))
    await producer.flush()


@dataclass(frozen=True)
class Delivery:
    member: str
    partition: int
    offset: int
    generation: int
    key: bytes
    sequence: int


@dataclass(frozen=True)
class Callback:
    member: str
    name: str
    partitions: tuple[int, ...]


@dataclass
class History:
    """What happened, and what was wrong when it happened."""

    cluster: Cluster
    group: str = GROUP
    events: list[Delivery | Callback] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    by_key: defaultdict[bytes, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def committed(self, partition: int) -> int | None:
        """What the group's coordinator has, -1 if it has nothing; None while no broker coordinates the group."""
        known: list[int] = []
        for node in self.cluster.nodes.values():
            with contextlib.suppress(KafkaError):
                known.append(node.services.groups.offsets.of(self.group).offset_of((TOPIC, partition)))
        return max(known, default=None)

    def _is_uncommitted(self, delivery: Delivery) -> bool:
        """Whether a coordinator is known to lack it: between two of them there is nobody to ask."""
        committed = self.committed(delivery.partition)
        return committed is not None and committed <= delivery.offset

    def handed_out(self, member: str, record: ConsumerRecord) -> None:
        audit = next((value for name, value in record.headers if name == audit_mark.HEADER), None)
        sequence = audit_mark.decode(audit)[1] if audit is not None else -1
        one = Delivery(member, record.partition, record.offset, record.generation, record.key or b"", sequence)
        for other in self.by_key[one.key]:
            if other.partition == one.partition:
                continue
            if other.sequence > one.sequence and other.offset < self.positions.get(other.partition, 0):
                self.wrong.append(f"I4: {one} came after {other}")
            if other.sequence < one.sequence and self._is_uncommitted(other):
                self.wrong.append(f"I4': {one} came before {other} was committed")
        self.positions[one.partition] = one.offset + 1
        self.by_key[one.key].append(one)
        self.events.append(one)
        self.wakeup.set()

    def called(self, member: str, name: str, partitions: Collection[TopicPartition]) -> None:
        if name == "assigned":
            for one in partitions:
                self.positions[one.partition] = max(self.committed(one.partition) or 0, 0)
        self.events.append(Callback(member, name, tuple(sorted(one.partition for one in partitions))))
        self.wakeup.set()

    @property
    def deliveries(self) -> list[Delivery]:
        return [event for event in self.events if isinstance(event, Delivery)]

    @property
    def distinct(self) -> set[tuple[int, int]]:
        return {(one.partition, one.offset) for one in self.deliveries}

    async def until(self, condition: Callable[[], object], timeout_s: float = 60) -> None:
        """Wait for something to become true of what has happened."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self.wakeup.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self.wakeup.wait()

    def judge(self, lineage: Lineage, expected: int) -> None:
        assert self.wrong == [], self.wrong[:3]
        assert self.callbacks_out_of_order(lineage) == []
        assert len(self.distinct) == expected, "I12"

    def callbacks_out_of_order(self, lineage: Lineage) -> list[str]:
        """I5, for key epochs with delivered records of members that did not crash."""
        found: list[str] = []
        flushed_at: dict[int, int] = {}
        unflushed: dict[KeyEpoch, int] = {}
        for place, event in enumerate(self.events):
            if isinstance(event, Delivery):
                unflushed[KeyEpoch(event.partition, event.generation)] = place
            elif event.name in ("maybe_revoked", "crashed"):
                for partition in event.partitions:
                    flushed_at[partition] = place
            elif event.name == "key_assigned":
                for key_epoch in (one for partition in event.partitions for one in lineage.key_epochs(partition)):
                    for source in lineage.predecessors(key_epoch):
                        read_at = unflushed.get(source)
                        if read_at is not None and flushed_at.get(source.partition, -1) < read_at:
                            found.append(f"I5: {event} before {source} was flushed")
        return found


class Recorder(PartitionKeyRebalanceListener):
    """Writes down its callbacks; each takes a moment, so that an overlap would show."""

    def __init__(self, member: str, history: History) -> None:
        self.member = member
        self.history = history

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.history.called(self.member, "revoked", partitions)

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.history.called(self.member, "assigned", partitions)

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.history.called(self.member, "lost", partitions)

    async def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0.01)
        self.history.called(self.member, "maybe_revoked", partitions)

    async def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.history.called(self.member, "key_assigned", partitions)
        await asyncio.sleep(0.01)


class Reader:
    """An application: one member that reads, at its own pace, until it is stopped or crashes."""

    def __init__(self, name: str, history: History, **settings: Any) -> None:
        self.name = name
        self.history = history
        self.pause_s = settings.pop("pause_s", 0.0)
        self.batch = settings.pop("batch", 500)
        self.commits = settings.pop("commits", False)
        self.listener: Recorder = settings.pop("listener", None) or Recorder(name, history)
        self.settings = {
            "bootstrap_servers": history.cluster.bootstrap_servers,
            "group_id": history.group,
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 50,
            "session_timeout_ms": 60_000,
            "heartbeat_interval_ms": 50,
            "rebalance_timeout_ms": 60_000,
            "fetch_max_wait_ms": 50,
            "metadata_max_age_ms": 100,
            "listener": self.listener,
            **settings,
        }
        self.consumer = self.make()
        self.task: asyncio.Task[None] | None = None
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._paused = asyncio.Event()
        self._polls = 0
        self._polled = asyncio.Condition()

    def make(self) -> Consumer:
        return Consumer(TOPIC, **self.settings)

    async def start(self) -> Reader:
        await self.consumer.start()
        self.task = asyncio.create_task(self._read(), name=f"reader {self.name}")
        return self

    async def _read(self) -> None:
        while True:
            if not self.go_on.is_set():
                self._paused.set()
                await self.go_on.wait()
                self._paused.clear()
            batch = await self.consumer.getmany(timeout_ms=100, max_records=self.batch)
            for records in batch.values():
                for record in records:
                    self.history.handed_out(self.name, record)
            if self.pause_s and batch:
                await asyncio.sleep(self.pause_s)
            if self.commits and batch:
                await self.consumer.commit()
            async with self._polled:
                self._polls += 1
                self._polled.notify_all()

    async def pause(self) -> None:
        """Ask for no more records, and wait until none are asked for; `go_on.set()` ends that."""
        self.go_on.clear()
        await self._paused.wait()

    async def polled(self) -> None:
        """Wait until a call for records that has not begun yet is over."""
        async with self._polled:
            begun = self._polls
            await self._polled.wait_for(lambda: self._polls >= begun + 2)

    async def _end(self) -> None:
        assert self.task is not None
        if self.task.done() and not self.task.cancelled():
            self.task.result()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self) -> None:
        await self._end()
        await self.consumer.stop()

    async def crash(self) -> None:
        """Crash without a commit; the coordinator expires the session at once."""
        await self._end()
        owned = self.consumer.assignment()
        session = self.consumer._session
        assert session is not None
        member_id, generation = session.membership.member_id, session.membership.generation
        if session._heartbeats is not None:
            session._heartbeats.cancel()
        await self.consumer._network.close()
        session.membership.member_id, session.membership.generation = member_id, generation
        self.consumer._fetcher.close()
        assert self.consumer._joiner is not None
        await self.consumer._joiner.close()
        await self.consumer._gatekeeper.close()
        self.history.called(self.name, "crashed", owned)
        async with Admin(self.history.cluster.bootstrap_servers) as admin:
            await throw_out(admin._network, self.history.group, member_id)

    @property
    def owned(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    @property
    def gated(self) -> set[int]:
        return {gate.key_epoch.partition for gate in self.consumer.gates()}


async def throw_out(network: Network, group_id: str, member_id: str) -> None:
    """The coordinator no longer knows the member, as if its session had run out."""
    request = LeaveGroupRequest(group_id=group_id, member_id=member_id, members=[MemberIdentity(member_id=member_id)])
    response = await network.call(await network.coordinator(group_id), request)
    assert response.error_code == ErrorCode.NONE


@asynccontextmanager
async def readers(history: History, count: int, **settings: Any) -> AsyncIterator[list[Reader]]:
    """Some members of the group; each is stopped at the end, unless it has crashed."""
    members = [await Reader(f"reader-{number}", history, **settings).start() for number in range(count)]
    try:
        yield members
    finally:
        for member in members:
            if not member.consumer._network._pool.closed:
                await member.stop()


def repeated(history: History) -> int:
    return sum(count - 1 for count in Counter((one.partition, one.offset) for one in history.deliveries).values())
