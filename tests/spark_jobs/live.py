"""A real cluster on a loop in a thread, for blocking readers and Spark."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

from anabranch import Admin, NewTopic, Producer
from anabranch.cluster.in_process import Cluster
from anabranch.protocol import audit, audit_mark
from anabranch.protocol.audit import Delivery
from anabranch.protocol.audit import bucket_key as wire_key
from tests.spark_jobs.histories import History, runs

T = TypeVar("T")
TIMEOUT_S = 300.0
"""For what hangs: two JVMs may be starting beside it."""
PRODUCER = 7


class LiveCluster:
    """`with LiveCluster(3) as live: live.create("t", 4); live.produce("t", [...])`."""

    def __init__(self, brokers: int, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster", daemon=True)
        self._thread.start()
        self.cluster = self.run(self._make(brokers, options))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine on the cluster's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    @property
    def servers(self) -> str:
        return self.cluster.bootstrap_servers

    def create(self, topic: str, partitions: int, *, replicas: int = 1) -> str:
        """A topic that every broker knows."""
        self.run(self._create(topic, partitions, replicas))
        return topic

    def grow(self, topic: str, partitions: int) -> None:
        self.run(self._grow(topic, partitions))

    def produce(
        self,
        topic: str,
        records: Sequence[tuple[int, bytes, bytes]],
        *,
        headers: Sequence[tuple[str, bytes | None]] = (),
        compression: str | None = None,
    ) -> list[int]:
        """Send (partition, key, value); the offsets."""
        return self.run(self._produce(topic, records, headers, compression))

    def produce_marked(self, topic: str, records: Sequence[tuple[int, bytes, int]]) -> list[int]:
        """Send (partition, key, sequence) as an auditing producer would; the offsets."""
        return self.run(self._produce_marked(topic, records))

    def write_history(self, topic: str, expect: str, history: History) -> tuple[History, list[tuple[int, bytes]]]:
        """Store what a history stores, in as many partitions as it needs; the history with the offsets that came of it,
        and its audit records, to be written by `write_audit`."""
        self.create(topic, 2)
        self.create(expect, 1 + max(record.partition for record in history.stored))
        history = replace(history, stored_ms=time.time_ns() // 1_000_000)
        rows = [
            (one.partition, one.key, one.value, one.headers, time_ms)
            for one, time_ms in zip(history.stored, history.stored_times, strict=True)
        ]
        offsets = dict(zip(history.stored, self.run(self._produce_rows(expect, rows)), strict=True))
        moved = history.at_offsets(offsets, expect)
        return moved, runs(moved.timed())

    def write_audit(self, topic: str, written: Sequence[tuple[int, bytes]]) -> None:
        """Store audit records, in this order, as consumers would."""
        self.run(self._produce_rows(topic, [(one % 2, wire_key(one), value, (), None) for one, value in written]))

    def leader(self, topic: str, index: int) -> int:
        return self.run(self._leader(topic, index))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self.cluster.stop())
            self.run(self._end_tasks())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(TIMEOUT_S)
            self._loop.close()

    async def _end_tasks(self) -> None:
        """As `asyncio.run` does, after an iteration in which accepted connections get a transport."""
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for one in others:
            one.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)

    async def _make(self, brokers: int, options: dict[str, Any]) -> Cluster:
        cluster = Cluster(brokers, seed=1, **options)
        await cluster.start()
        return cluster

    async def _create(self, topic: str, partitions: int, replicas: int) -> None:
        async with Admin(bootstrap_servers=self.servers) as admin:
            await admin.create_topics([NewTopic(name=topic, partitions=partitions, replication_factor=replicas)])
            await admin.wait_for_topic(topic, replicas=replicas)

    async def _grow(self, topic: str, partitions: int) -> None:
        async with Admin(bootstrap_servers=self.servers) as admin:
            await admin.create_partitions(topic, partitions)
            await admin.wait_until(lambda found: len(found.topics[topic].partitions) == partitions, topic)

    async def _produce(
        self,
        topic: str,
        records: Sequence[tuple[int, bytes, bytes]],
        headers: Sequence[tuple[str, bytes | None]],
        compression: str | None,
    ) -> list[int]:
        async with Producer(bootstrap_servers=self.servers, compression_type=compression) as producer:
            receipts = [
                await producer.send(topic, key=key, value=value, partition=index, headers=headers)
                for index, key, value in records
            ]
            await producer.flush()
            return [(await receipt).offset for receipt in receipts]

    async def _produce_rows(
        self, topic: str, rows: Sequence[tuple[int, bytes, bytes, Sequence[tuple[str, bytes | None]], int | None]]
    ) -> list[int]:
        async with Producer(bootstrap_servers=self.servers) as producer:
            receipts = [
                await producer.send(topic, key=key, value=value, partition=index, headers=headers, timestamp_ms=time_ms)
                for index, key, value, headers, time_ms in rows
            ]
            await producer.flush()
            return [(await receipt).offset for receipt in receipts]

    async def _produce_marked(self, topic: str, records: Sequence[tuple[int, bytes, int]]) -> list[int]:
        async with Producer(bootstrap_servers=self.servers) as producer:
            receipts = [
                await producer.send(
                    topic,
                    key=key,
                    value=b"",
                    partition=index,
                    headers=[("other", None), (audit_mark.HEADER, audit_mark.encode(PRODUCER, sequence))],
                )
                for index, key, sequence in records
            ]
            await producer.flush()
            return [(await receipt).offset for receipt in receipts]

    async def _leader(self, topic: str, index: int) -> int:
        async with Admin(bootstrap_servers=self.servers) as admin:
            return (await admin.describe_topic(topic)).partitions[index].leader


DELIVERY = Delivery(
    generation=0,
    partition=0,
    offset=0,
    producer=PRODUCER,
    sequence=0,
    fingerprint=0,
    time_ms=1_700_000_000_000,
    incarnation=1,
    group="readers",
    member="reader-1",
    topic="flights",
)


def deliveries(
    key: bytes, places: Sequence[tuple[int, int, int]], *, of: Delivery = DELIVERY
) -> list[tuple[int, bytes, bytes]]:
    """Audit records of one key, to be produced in this order: (sequence, partition, offset) of what was delivered."""
    return [
        (
            key[0] % 2,
            key,
            audit.encode_delivery(replace(of, sequence=sequence, partition=partition, offset=offset)),
        )
        for sequence, partition, offset in places
    ]
