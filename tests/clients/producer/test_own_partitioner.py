"""An application's partitioner is called by its interface, and cannot break key order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch import Admin, ClusterView, NewTopic, Partitioner, Producer, StickyPartitioner
from anabranch.clients.metadata import ClusterMetadata
from anabranch.clients.producer.own_partitioner import OwnPartitioner
from anabranch.clients.producer.partitioner import PartitionerFunction
from anabranch.clients.producer.queues import TopicQueues
from anabranch.clients.producer.routes import explicit_route
from anabranch.cluster.in_process import Cluster as Brokers
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import Lineage

KEY = next(b"%d" % n for n in range(100) if murmur2(b"%d" % n) % 3 == 1)
"""Belongs in partition 1 of 3."""


class Always:
    """Always returns the same partition, and records its calls."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []

    def partition(self, *asked: Any) -> int:
        *record, self.cluster = asked
        self.asked.append(tuple(record))
        chosen: int = self.answer
        return chosen


class RoundRobin:
    """Sticks to a partition while its batch has room."""

    def __init__(self) -> None:
        self.current = 0
        self.begun: list[int] = []

    def partition(self, topic: str, *asked: Any) -> int:
        ready = asked[-1].ready_partitions_for_topic(topic)
        return ready[self.current % len(ready)]

    def on_new_batch(self, topic: str, cluster: ClusterView, prev_partition: int) -> None:
        self.begun.append(prev_partition)
        self.current += 1


@asynccontextmanager
async def producer_with(
    given: Partitioner | PartitionerFunction, *, ordered: bool = True, **settings: Any
) -> AsyncIterator[Producer]:
    async with asyncio.timeout(60), Brokers(1, seed=1) as brokers, Admin(brokers.bootstrap_servers) as admin:
        configs = {} if ordered else {"enable.ordered.delivery": "false"}
        await admin.create_topics([NewTopic(name="t", partitions=3, configs=configs)])
        await admin.wait_for_topic("t")
        async with Producer(brokers.bootstrap_servers, partitioner=given, **settings) as producer:
            yield producer


async def test_partitioner_is_called_for_every_record_without_partition() -> None:
    own: Partitioner = (always := Always(2))
    async with producer_with(own) as producer:
        assert (await producer.send_and_wait("t", b"v")).partition == 2
        assert (await producer.send_and_wait("t", b"v", partition=0)).partition == 0
        assert always.asked == [("t", None, None, b"v", b"v", True)]
        cluster = always.cluster
        assert cluster.partitions_for_topic("t") == (0, 1, 2)
        assert cluster.available_partitions_for_topic("t") == cluster.ready_partitions_for_topic("t") == (0, 1, 2)
        assert cluster.partition_for_key("t", KEY) == 1
        assert cluster.metadata.topics["t"].min_insync_replicas == 1
        for known in (
            cluster.partitions_for_topic,
            cluster.available_partitions_for_topic,
            cluster.ready_partitions_for_topic,
        ):
            assert known("unheard of") == ()


async def test_function_partitioner_gets_acks_requirement() -> None:
    asked = []

    def function(
        topic: str, key: Any, key_bytes: Any, value: Any, value_bytes: Any, require: bool, cluster: ClusterView
    ) -> int:
        asked.append((topic, key_bytes, value_bytes, require))
        return 1

    async with producer_with(function, acks=1) as producer:
        await producer.send_and_wait("t", b"v", KEY)
    assert asked == [("t", KEY, b"v", False)]


async def test_ordered_topic_refuses_key_outside_its_partition() -> None:
    always = Always(2)
    async with producer_with(always) as producer:
        with pytest.raises(ValueError, match=rf"t: the partitioner chose partition 2 for the key {KEY!r}, .* in 1: "):
            await producer.send("t", b"v", KEY)
        assert producer.metrics().buffered_bytes == 0
        always.answer = 1
        assert (await producer.send_and_wait("t", b"v", KEY)).partition == 1


async def test_unordered_topic_accepts_partitioner_choice() -> None:
    async with producer_with(Always(2), ordered=False) as producer:
        assert (await producer.send_and_wait("t", b"v", KEY)).partition == 2


def test_resized_topic_that_became_unordered_accepts_partitioner_choice() -> None:
    """Its partitions still have generations: the choice counts as an explicit partition."""
    topic = TopicQueues("t")
    topic.hash_over(Lineage(3, [(0, 3), (1, 4)]), range(4))
    own = OwnPartitioner(Always(2), ClusterView({"t": topic}, ClusterMetadata), waits_for_replicas=True, batch_bytes=1)
    home = topic.address(murmur2(KEY))
    assert home != 2
    with pytest.raises(ValueError, match="belongs in"):
        own.place(topic, murmur2(KEY), KEY, b"v", 1)
    topic.gated = False
    assert own.place(topic, murmur2(KEY), KEY, b"v", 1) == (explicit_route(2), 2)


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (3, "chose partition 3, but records go to"),
        (-1, "partition -1"),
        (None, "None, which is no"),
        ("1", "'1', which"),
    ],
)
async def test_invalid_partitioner_result_is_refused(answer: Any, complaint: str) -> None:
    async with producer_with(Always(answer)) as producer:
        with pytest.raises(ValueError, match=complaint):
            await producer.send("t", b"v")
        assert producer.metrics().records_sent == 0


async def test_sticky_partitioner_is_notified_of_new_batches() -> None:
    own: StickyPartitioner = (robin := RoundRobin())
    async with producer_with(own, batch_bytes=250, linger_ms=1000) as producer:
        receipts = [await producer.send("t", b"x" * 100) for _ in range(12)]
        placed = [stored.partition for stored in await asyncio.gather(*receipts)]
        # The next one is asked for with the first record, as in Kafka, and then whenever two fill a batch.
        assert placed == [1, 1, 2, 2, 0, 0, 1, 1, 2, 2, 0, 0]
        assert robin.begun == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("given", [7, Always, object()])
def test_invalid_partitioner_is_refused_at_construction(given: Any) -> None:
    with pytest.raises(ValueError, match="partitioner is linear, modulo, a function, or an object"):
        Producer(partitioner=given)


async def test_documented_example_keeps_records_in_rack() -> None:
    page = (Path(__file__).parents[3] / "docs/clients.md").read_text()
    (example,) = re.findall(r"```python\n# nearby.py\n(.*?)\n\nasync def main", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    async with (
        asyncio.timeout(60),
        Brokers(3, seed=1, racks=("a", "b", "c")) as brokers,
        Admin(brokers.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic(name="t", assignments={0: [1], 1: [2], 2: [3]})])
        await admin.wait_for_topic("t")
        async with Producer(brokers.bootstrap_servers, partitioner=names["Nearby"]()) as producer:
            assert {(await producer.send_and_wait("t", b"v")).partition for _ in range(12)} == {0}
            assert (await producer.send_and_wait("t", b"v", KEY)).partition == 1
            await brokers.stop_broker(1)
            await admin.wait_until(lambda metadata: metadata.leader("t", 0) == -1, "t")
            while producer.metadata.leader("t", 0) != -1:
                producer._network.request_refresh()
                await asyncio.sleep(0.01)
            assert {(await producer.send_and_wait("t", b"v")).partition for _ in range(12)} == {1, 2}
