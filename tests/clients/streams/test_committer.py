"""State that was restored from a deleted changelog does not outlive it in the next one of its name.

Method: the real committer and real stores on disk; producer, consumer and cluster are played. A changelog is created
again at a chosen step of a commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from anabranch.clients.consumer.consumer import Consumer
from anabranch.clients.group_metadata import ConsumerGroupMetadata
from anabranch.clients.metadata import ClusterMetadata, Topic
from anabranch.clients.producer.producer import Producer
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.clients.streams.committer import Committer
from anabranch.clients.streams.internal_topic_manager import InternalTopicManager
from anabranch.clients.streams.streams_errors import TasksMigrated
from anabranch.clients.streams.task_disk import TaskDisk
from anabranch.clients.streams.task_effects import Commit
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Task
from anabranch.clients.streams.topology import Topology
from anabranch.protocol.errors import ErrorCode, KafkaError
from anabranch.protocol.topic_partition import TopicPartition

FIRST, SECOND = b"1" * 16, b"2" * 16
COUNTS, SUMS = "app-counts-changelog", "app-sums-changelog"
INPUT = TopicPartition("in", 0)


class Cluster:
    """The changelogs' present ids, and the producer and consumer of an instance. The producer knows `known`."""

    def __init__(self) -> None:
        self.present = {COUNTS: FIRST, SUMS: FIRST}
        self.known = dict(self.present)
        self.sent: list[str] = []
        self.ended: list[str] = []
        self.committed: dict[TopicPartition, int] = {}
        self.on_flush: Callable[[], None] = lambda: None
        self.down = False

    def create_again(self, topic: str) -> None:
        self.present[topic] = self.known[topic] = SECOND

    # InternalTopicManager

    async def topic_ids(self, topics: Collection[str]) -> dict[str, bytes]:
        return {topic: self.present[topic] for topic in topics}

    async def missing(self, topics: Collection[str]) -> list[str]:
        return []

    # Producer

    @property
    def metadata(self) -> ClusterMetadata:
        return ClusterMetadata(topics={name: Topic(name, topic_id, {}) for name, topic_id in self.known.items()})

    async def wait_for_partitions(self, topic: str, count: int) -> None:
        pass

    async def send(self, topic: str, *_: Any, partition: int, **__: Any) -> asyncio.Future[RecordMetadata]:
        receipt: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        receipt.set_result(RecordMetadata(topic, partition, 100 + len(self.sent), 0))
        self.sent.append(topic)
        return receipt

    async def flush(self) -> None:
        self.on_flush()

    async def begin_transaction(self) -> None:
        pass

    async def commit_transaction(self) -> None:
        self.ended.append("committed")

    async def abort_transaction(self) -> None:
        if self.down:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        self.ended.append("aborted")

    async def stop(self) -> None:
        pass

    async def send_offsets_to_transaction(self, offsets: Any, group: Any) -> None:
        pass

    # Consumer

    async def check_membership(self) -> None:
        pass

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.committed.update(offsets)

    def group_metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata("app")


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    """A running task with changes of both stores, which were restored from the first changelogs."""
    topology = Topology()
    stream = topology.stream("in")
    stream.count("counts").to("out")
    stream.count("sums").to("out")
    (part,) = topology.build("app").subtopologies
    one = Task(TaskId(0, 0), "app", part, TaskDisk(tmp_path, part.stores), state=State.CATCHING_UP)
    one.state_manager.check(dict.fromkeys(part.stores, FIRST))
    one.state_manager.aim(dict.fromkeys(part.stores, 0))
    one.run()
    for store in one.stores.values():
        store.put(b"k", b"17")
    yield one
    one.close()


async def committer_of(cluster: Cluster, *, exactly_once: bool) -> Committer:
    async def connect(_: str | None) -> Producer:
        if cluster.down:
            raise ConnectionError("no bootstrap server responded")
        return cast(Producer, cluster)

    committer = Committer(
        "app",
        "app-1",
        connect,
        cast(Consumer, cluster),
        cast(InternalTopicManager, cluster),
        exactly_once=exactly_once,
    )
    await committer.start()
    return committer


async def commit_of(cluster: Cluster, task: Task, *, exactly_once: bool) -> None:
    committer = await committer_of(cluster, exactly_once=exactly_once)
    await committer.commit(Commit([task], {INPUT: 7}, []))


async def test_changes_that_reached_the_next_changelog_are_committed_and_their_store_is_doubted(task: Task) -> None:
    """At least once: the changelog has them, so that they are counted once, but the store has more than it."""
    cluster = Cluster()
    cluster.on_flush = lambda: cluster.create_again(COUNTS)
    await commit_of(cluster, task, exactly_once=False)
    assert cluster.committed == {INPUT: 7}
    assert task.state_manager.unchecked
    assert {name: store.doubted for name, store in task.stores.items()} == {"counts": True, "sums": False}


async def test_transaction_with_changes_that_reached_the_next_changelog_is_aborted(task: Task) -> None:
    cluster = Cluster()
    cluster.on_flush = lambda: cluster.create_again(COUNTS)
    with pytest.raises(TasksMigrated, match=f"{COUNTS} was deleted and created again"):
        await commit_of(cluster, task, exactly_once=True)
    assert cluster.ended == ["aborted"]


@pytest.mark.parametrize("recreated", [COUNTS, SUMS])
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_nothing_is_written_if_one_of_the_changelogs_was_created_again(
    recreated: str, exactly_once: bool, task: Task
) -> None:
    """Outside a transaction, records on their way to the others would arrive while these are read again."""
    cluster = Cluster()
    cluster.create_again(recreated)
    with pytest.raises(TasksMigrated, match=f"{recreated} was deleted and created again"):
        await commit_of(cluster, task, exactly_once=exactly_once)
    assert not cluster.sent
    assert not cluster.committed


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_producer_that_does_not_know_the_changelog_of_the_store_yet_writes_to_it(
    exactly_once: bool, task: Task
) -> None:
    """Its metadata is older than the store, which was restored from the new changelog."""
    cluster = Cluster()
    cluster.create_again(COUNTS)
    cluster.known[COUNTS] = FIRST
    task.state_manager.check({"counts": SECOND})
    await commit_of(cluster, task, exactly_once=exactly_once)
    assert sorted(cluster.sent) == [COUNTS, SUMS]
    assert cluster.ended == (["committed"] if exactly_once else [])
    assert not task.state_manager.unchecked


async def test_producer_that_cannot_be_replaced_during_an_outage_is_replaced_after_it(task: Task) -> None:
    """An instance that ends meanwhile has nothing to drop."""
    cluster = Cluster()
    committer = await committer_of(cluster, exactly_once=True)
    await committer.send([])
    cluster.down = True
    with pytest.raises(ConnectionError):
        await committer.drop()
    await committer.drop()
    with pytest.raises(ConnectionError):
        await committer.replace_producer()
    cluster.down = False
    await committer.replace_producer()
    await committer.commit(Commit([task], {INPUT: 7}, []))
    assert cluster.ended == ["committed"]
