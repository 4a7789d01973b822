"""librdkafka's transactional producer: commits, aborts, fencing, and exactly-once copies while coordinators die."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anabranch import Admin, NewTopic
from anabranch.broker.metadata.metadata_cache import PartitionImage
from anabranch.clients.connection import Connection
from anabranch.cluster.in_process import Cluster
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.errors import ErrorCode
from anabranch.protocol.hashing import partition_of_group

pytestmark = pytest.mark.interop

PARTITIONS = 3
RECORDS = 600
CRASHES = 10


def producer(servers: str, transactional_id: str) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 20_000,
            "retry.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )


def consumer(servers: str, group: str, *topics: str, isolation: str = "read_committed") -> Any:
    from confluent_kafka import Consumer

    one = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "session.timeout.ms": 30_000,
            "retry.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    one.subscribe(list(topics))
    return one


def read(servers: str, group: str, topic: str, enough: Callable[[list[bytes]], bool], **settings: Any) -> list[bytes]:
    """The values of a topic, until there are enough."""
    one = consumer(servers, group, topic, **settings)
    values: list[bytes] = []
    try:
        while not enough(values):
            message = one.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value())
    finally:
        one.close()
    return values


@asynccontextmanager
async def cluster_with(*topics: str) -> AsyncIterator[Cluster]:
    async with Cluster(3) as cluster:
        async with Admin(cluster.bootstrap_servers) as admin:
            await admin.create_topics(
                [NewTopic(name=name, partitions=PARTITIONS, replication_factor=3) for name in topics]
            )
        yield cluster


async def test_commits_aborts_and_fencing() -> None:
    from confluent_kafka import KafkaException

    def story(servers: str) -> None:
        first = producer(servers, "tx")
        first.init_transactions(60)
        for number, commit in enumerate((True, False, True)):
            first.begin_transaction()
            for key in range(6):
                first.produce("t", b"%d-%d" % (number, key), b"%d" % key)
            first.flush(60)
            first.commit_transaction(60) if commit else first.abort_transaction(60)
        first.begin_transaction()
        first.produce("t", b"left behind")
        first.flush(60)
        second = producer(servers, "tx")
        second.init_transactions(60)
        with pytest.raises(KafkaException) as fenced:
            first.commit_transaction(60)
        assert fenced.value.args[0].fatal()
        second.begin_transaction()
        for key in range(6):
            second.produce("t", b"3-%d" % key, b"%d" % key)
        second.commit_transaction(60)
        committed = sorted(b"%d-%d" % (number, key) for number in (0, 2, 3) for key in range(6))
        assert sorted(read(servers, "committed", "t", lambda seen: len(seen) >= 18)) == committed
        everything = read(servers, "all", "t", lambda seen: len(seen) >= 25, isolation="read_uncommitted")
        assert sorted(everything) == sorted([*committed, *(b"1-%d" % key for key in range(6)), b"left behind"])

    async with cluster_with("t") as cluster:
        await asyncio.to_thread(story, cluster.bootstrap_servers)


class Copier:
    """Consume, transform, produce, in transactions: one member of a group, and what follows from every error."""

    def __init__(self, servers: str, name: str) -> None:
        self.servers = servers
        self.name = name
        self.turn = threading.Condition()
        self.goal = 0
        self.copied = 0
        self.aborted = 0
        self.restarted = 0
        self.done = False

    def work(self) -> None:
        from confluent_kafka import KafkaException

        source = consumer(self.servers, "copy", "in")
        try:
            while not self.done:
                sink = producer(self.servers, self.name)
                try:
                    self._insist(lambda sink=sink: sink.init_transactions(5))
                    while not self.done:
                        self._copy(source, sink)
                except KafkaException:
                    self.restarted += 1
                    self._rewind(source)
        finally:
            source.close()

    def _copy(self, source: Any, sink: Any) -> None:
        from confluent_kafka import KafkaException

        with self.turn:
            self.turn.wait_for(lambda: self.done or self.copied < self.goal)
        batch = [one for one in source.consume(10, 0.3) if one.error() is None]
        if not batch:
            return
        sink.begin_transaction()
        try:
            for message in batch:
                sink.produce("out", message.value().upper(), message.key())
            positions = source.position(source.assignment())
            sink.send_offsets_to_transaction(positions, source.consumer_group_metadata(), 5)
            self._insist(lambda: sink.commit_transaction(5))
        except KafkaException as error:
            if error.args[0].fatal():
                raise
            self._insist(lambda: sink.abort_transaction(5))
            self.aborted += 1
            self._rewind(source)
        else:
            self.copied += len(batch)

    def may_copy(self, goal: int, *, done: bool = False) -> None:
        """Let the copier copy up to this many records; `done` ends it then."""
        with self.turn:
            self.goal, self.done = goal, done
            self.turn.notify_all()

    @staticmethod
    def _insist(ask: Callable[[], Any]) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                ask()
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    @staticmethod
    def _rewind(source: Any) -> None:
        from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

        while source.assignment():
            try:
                for one in source.committed(source.assignment(), 5):
                    source.seek(TopicPartition(one.topic, one.partition, max(one.offset, OFFSET_BEGINNING)))
                return
            except KafkaException:
                source.poll(0.2)


@pytest.mark.costly
async def test_exactly_once_while_coordinators_die() -> None:
    """The transaction coordinator is killed abruptly ten times."""
    keys = 7

    def fill(servers: str) -> None:
        from confluent_kafka import Producer

        source = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True})
        for number in range(RECORDS):
            source.produce("in", b"v%d" % number, b"k%d" % (number % keys))
        assert source.flush(60) == 0

    async with cluster_with("in", "out") as cluster:
        servers = cluster.bootstrap_servers
        await asyncio.to_thread(fill, servers)
        copier = Copier(servers, await a_name_apart(cluster))
        copying = asyncio.create_task(asyncio.to_thread(copier.work))
        try:
            await crash_coordinators(cluster, copier)
            copier.may_copy(RECORDS)
            await progress(copier, RECORDS)
        finally:
            copier.may_copy(RECORDS, done=True)
            await copying
        expected = sorted(b"V%d" % number for number in range(RECORDS))
        out = await asyncio.to_thread(read, servers, "check", "out", lambda seen: len(seen) >= RECORDS)
        assert sorted(out) == expected


async def progress(copier: Copier, count: int) -> None:
    """Wait until so many records are copied."""
    async with asyncio.timeout(60):
        while copier.copied < count:  # noqa: ASYNC110 -- the copier is a thread
            await asyncio.sleep(0.01)


async def crash_coordinators(cluster: Cluster, copier: Copier) -> None:
    """Crash one after another in the middle of the copying, with some progress in between.

    The copier gets its work in portions, so that there is something left to do however fast it is.

    Never the group's: librdkafka forgets a broker that is missing in metadata, and waits for ever for offsets that it
    was about to commit there, also when the broker is back.
    """
    portion = RECORDS // (CRASHES + 1)
    for done in range(0, CRASHES * portion, portion):
        await progress(copier, done)
        await apart(cluster, copier)
        copier.may_copy(done + portion)
        await progress(copier, done + portion // 2)
        leader = leader_for(cluster, "__transaction_state", copier.name)
        await cluster.crash_broker(leader)
        await cluster.start_broker(leader)


async def apart(cluster: Cluster, copier: Copier) -> None:
    """Wait until preferred leaders have their leaderships back, so that the two coordinators are two brokers."""
    async with asyncio.timeout(60):
        while leader_for(cluster, "__transaction_state", copier.name) in (  # noqa: ASYNC110 -- several brokers' doing
            -1,
            leader_for(cluster, "__consumer_offsets", "copy"),
        ):
            await asyncio.sleep(0.01)


def leader_for(cluster: Cluster, topic: str, key: str) -> int:
    return partition_for(cluster, topic, key).leader


def partition_for(cluster: Cluster, topic: str, key: str) -> PartitionImage:
    """The partition of a key, from any broker's metadata."""
    partitions = next(iter(cluster.nodes.values())).services.metadata.image.topics[topic].partitions
    return partitions[partition_of_group(key, len(partitions))]


async def a_name_apart(cluster: Cluster) -> str:
    """A transactional id whose coordinator is by preference another broker than the group's."""
    node = next(iter(cluster.nodes.values()))
    connection = await Connection.open("127.0.0.1", node.port, client_id="test")
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
        while (code := (await connection.call(request)).coordinators[0].error_code) != ErrorCode.NONE:
            assert code == ErrorCode.COORDINATOR_NOT_AVAILABLE, "until its topic has been made"
    await connection.close()
    taken = partition_for(cluster, "__consumer_offsets", "copy").replicas[0]
    names = (f"copier-{number}" for number in range(100))
    return next(one for one in names if partition_for(cluster, "__transaction_state", one).replicas[0] != taken)
