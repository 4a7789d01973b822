"""The cluster for other clients: three broker processes, a real ZooKeeper, and kills."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

import pytest

from anabranch.broker.profiles.profile import DEFAULT
from anabranch.clients.admin import Admin
from anabranch.clients.connection import Connection
from anabranch.clients.topic_admin import NewTopic
from anabranch.cluster.local_zookeeper import why_unavailable
from anabranch.cluster.processes import ProcessCluster
from anabranch.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.protocol.apis.find_coordinator import FindCoordinatorRequest
from anabranch.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.protocol.records.batch import iter_batches
from anabranch.protocol.records.record import iter_records

T = TypeVar("T")
PATIENCE_S = 90.0
SHOWN: Final = "ANABRANCH_SHOWN_KAFKA"
"""Which Kafka the cluster shows to the clients, if not 3.9."""


class World:
    """Blocking, as the tests of blocking clients are."""

    def __init__(self, runner: asyncio.Runner) -> None:
        properties = {
            "min.insync.replicas": "2",
            "transaction.state.log.num.partitions": "4",
            "transaction.state.log.replication.factor": "3",
            "kafka.version": os.environ.get(SHOWN, DEFAULT),
        }
        self.cluster = ProcessCluster(3, zookeeper="local", properties=properties, log_level="warning")
        self._runner = runner
        self._numbers = itertools.count(1)

    @property
    def servers(self) -> str:
        """Where clients begin."""
        return self.cluster.bootstrap_servers

    def name(self, what: str) -> str:
        """A new name."""
        return f"{what}-{next(self._numbers)}".replace(" ", "-")

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self._runner.run(work)

    def topic(self, what: str, partitions: int = 4, **configs: str) -> str:
        """A new topic on all three brokers."""
        name = self.name(what)
        given = {key.replace("_", "."): value for key, value in configs.items()}

        async def create() -> None:
            async with Admin(self.servers) as admin:
                await admin.create_topics([NewTopic(name=name, partitions=partitions, configs=given)])

        self.do(create())
        return name

    def resize(self, topic: str, count: int) -> None:
        """Resize a topic, and wait until the resize is over."""

        async def work() -> None:
            async with Admin(self.servers) as admin:
                await admin.create_partitions(topic, count, allow_shrink=True)

        self.do(work())

    def leader(self, topic: str, partition: int = 0) -> int:
        """The partition's leader; -1 if it has none."""
        return int(self._partition(topic, partition).leader_id)

    def coordinator(self, key: str, kind: int = 0) -> int:
        """Who coordinates a group (0) or a transactional id (1)."""
        answer = self._ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind))
        return int(answer.coordinators[0].node_id)

    def stored(self, topic: str) -> set[str]:
        """The values that stand in a topic, read without any client: who lost a record, we or the client?"""
        answer = self._topic(topic)
        values: set[str] = set()
        for partition in answer.partitions:
            node = self.cluster.nodes[partition.leader_id]
            values |= self.do(values_of(node.host, node.port, answer.topic_id, partition.partition_index))
        return values

    def kill(self, node_id: int) -> None:
        """SIGKILL a broker."""
        self.do(self.cluster.kill(node_id))

    def heal(self, *topics: str) -> None:
        """Start what is dead, and wait until all replicas of these topics are in sync again, and groups at home.

        Coordinators move when preferred leaders get their leaderships back, and aiokafka's `stop` does not survive it.
        """
        for node in self.cluster.brokers:
            if not node.running:
                self.do(self.cluster.restart(node.node_id))
        self.do(self.cluster.wait_brokers(3))
        for topic in (*topics, "__consumer_offsets"):
            self.until(lambda topic=topic: self._whole(topic), f"{topic} is in sync")
        self.until(lambda: self._at_home("__consumer_offsets"), "preferred leaders lead __consumer_offsets")

    def until(self, condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
        """Poll what other processes bring about."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"gave up waiting for: {what}"
            time.sleep(0.05)

    def _whole(self, topic: str) -> bool:
        answer = self._topic(topic)
        return answer.error_code == 3 or all(
            one.leader_id >= 0 and len(one.isr_nodes) == 3 for one in answer.partitions
        )

    def _at_home(self, topic: str) -> bool:
        return all(one.leader_id == one.replica_nodes[0] for one in self._topic(topic).partitions)

    def _partition(self, topic: str, index: int) -> Any:
        (found,) = [one for one in self._topic(topic).partitions if one.partition_index == index]
        return found

    def _topic(self, topic: str) -> Any:
        asked = [MetadataRequestTopic(name=topic)]
        return self._ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False)).topics[0]

    def _ask(self, request: Any) -> Any:
        async def work() -> Any:
            node = next(node for node in self.cluster.brokers if node.running)
            connection = await Connection.open(node.host, node.port, client_id="interop")
            try:
                return await connection.call(request)
            finally:
                await connection.close()

        return self.do(work())


async def values_of(host: str, port: int, topic_id: bytes, index: int) -> set[str]:
    """The values in a partition, from its leader."""
    connection = await Connection.open(host, port, client_id="interop")
    values: set[str] = set()
    offset = 0
    try:
        while True:
            asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
            topics = [FetchTopic(topic_id=topic_id, partitions=[asked])]
            answer = await connection.call(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics))
            records = answer.responses[0].partitions[0].records
            if not records:
                return values
            for position, header in iter_batches(records):
                values |= {(one.value or b"").decode() for one in iter_records(records, position)}
                offset = header.next_offset
    finally:
        await connection.close()


@contextlib.contextmanager
def running_world() -> Iterator[World]:
    """A world that runs, with an event loop. Without a real ZooKeeper its test is skipped."""
    if reason := why_unavailable():
        pytest.skip(f"NO REAL ZOOKEEPER: {reason}")
    with asyncio.Runner() as runner:
        one = World(runner)
        runner.run(one.cluster.start())
        yield one
        runner.run(one.cluster.stop())
