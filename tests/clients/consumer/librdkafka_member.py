"""A member of the group `readers` that is not ours: librdkafka, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from anabranch.cluster.in_process import Cluster
from tests.clients.consumer.groups import GROUP, TOPIC


class LibrdkafkaMember(threading.Thread):
    """Keeps what it was given, and commits automatically. Its test is skipped without confluent_kafka."""

    def __init__(self, cluster: Cluster, assignor: str) -> None:
        super().__init__(name="librdkafka")
        self.read: list[tuple[int, int]] = []
        self.owned: set[int] = set()
        self._end = threading.Event()
        self._make = pytest.importorskip("confluent_kafka").Consumer
        self._settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": 60_000,
            "heartbeat.interval.ms": 100,
            "topic.metadata.refresh.interval.ms": 200,
            "auto.commit.interval.ms": 100,
        }

    def run(self) -> None:
        consumer = self._make(self._settings)
        consumer.subscribe([TOPIC])
        while not self._end.is_set():
            message = consumer.poll(0.02)
            self.owned = {one.partition for one in consumer.assignment()}
            if message is not None and message.error() is None:
                self.read.append((message.partition(), message.offset()))
        consumer.close()

    async def end(self) -> None:
        self._end.set()
        await asyncio.get_running_loop().run_in_executor(None, self.join)
