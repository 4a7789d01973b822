"""Three other Kafka clients behind one shape, so that every story is told with each of them.

All calls block: tests run them in threads, as their users do.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

Record = tuple[bytes, bytes]


class OtherClient(Protocol):
    """Produce with acks=all and idempotence; consume in a group from the beginning."""

    def produce(self, servers: str, topic: str, records: Iterable[Record], acked: list[Record]) -> None:
        """Send every record, waiting for some of them now and then; `acked` grows as answers come."""

    def consume(
        self, servers: str, topic: str, group: str, seen: list[Record], enough: Callable[[], bool], **settings: Any
    ) -> None:
        """Consume and commit until `enough()`."""


class Confluent:
    """librdkafka."""

    def produce(
        self, servers: str, topic: str, records: Iterable[Record], acked: list[Record], compression: str = "none"
    ) -> None:
        """See OtherClient."""
        from confluent_kafka import Producer

        failures: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                acked.append((message.key(), message.value()))
            else:
                failures.append(error)

        producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": compression,
                "linger.ms": 1,
            }
        )
        for key, value in records:
            producer.produce(topic, key=key, value=value, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not failures

    def consume(
        self, servers: str, topic: str, group: str, seen: list[Record], enough: Callable[[], bool], **settings: Any
    ) -> None:
        """See OtherClient."""
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        consumer.subscribe([topic])
        try:
            while not enough():
                message = consumer.poll(0.2)
                if message is None:
                    continue
                if message.error() is not None:
                    assert message.error().retriable() or message.error().code() in (-195, -187, 3), message.error()
                    continue
                seen.append((message.key(), message.value()))
                if len(seen) % 50 == 0:
                    consumer.commit(asynchronous=True)
        finally:
            consumer.close()


class KafkaPython:
    """kafka-python."""

    def produce(self, servers: str, topic: str, records: Iterable[Record], acked: list[Record]) -> None:
        """See OtherClient."""
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=servers.split(","), acks="all", enable_idempotence=True, linger_ms=1, retry_backoff_ms=50
        )
        try:
            waiting = []
            for record in records:
                waiting.append((producer.send(topic, key=record[0], value=record[1]), record))
                if len(waiting) >= 20:
                    self._collect(waiting, acked)
            self._collect(waiting, acked)
        finally:
            producer.close(timeout=5)

    def _collect(self, waiting: list[tuple[Any, Record]], acked: list[Record]) -> None:
        for future, record in waiting:
            future.get(timeout=60)
            acked.append(record)
        waiting.clear()

    def consume(
        self, servers: str, topic: str, group: str, seen: list[Record], enough: Callable[[], bool], **settings: Any
    ) -> None:
        """See OtherClient."""
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=servers.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            auto_commit_interval_ms=200,
            **settings,
        )
        try:
            while not enough():
                for records in consumer.poll(timeout_ms=200).values():
                    seen += [(record.key, record.value) for record in records]
        finally:
            consumer.close()


class AioKafka:
    """aiokafka, in a loop of its own."""

    def produce(self, servers: str, topic: str, records: Iterable[Record], acked: list[Record]) -> None:
        """See OtherClient."""
        asyncio.run(self._produce(servers, topic, records, acked))

    async def _produce(self, servers: str, topic: str, records: Iterable[Record], acked: list[Record]) -> None:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(
            bootstrap_servers=servers, acks="all", enable_idempotence=True, linger_ms=1
        ) as producer:
            waiting = []
            for record in records:
                waiting.append((await producer.send(topic, key=record[0], value=record[1]), record))
                if len(waiting) >= 20:
                    await self._collect(waiting, acked)
            await self._collect(waiting, acked)

    async def _collect(self, waiting: list[tuple[Any, Record]], acked: list[Record]) -> None:
        for future, record in waiting:
            await asyncio.wait_for(future, 60)
            acked.append(record)
        waiting.clear()

    def consume(
        self, servers: str, topic: str, group: str, seen: list[Record], enough: Callable[[], bool], **settings: Any
    ) -> None:
        """See OtherClient."""
        asyncio.run(self._consume(servers, topic, group, seen, enough, settings))

    async def _consume(
        self,
        servers: str,
        topic: str,
        group: str,
        seen: list[Record],
        enough: Callable[[], bool],
        settings: dict[str, Any],
    ) -> None:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=True,
            auto_commit_interval_ms=200,
            **settings,
        )
        async with consumer:
            while not enough():
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    seen += [(record.key, record.value) for record in records]


CLIENTS: dict[str, OtherClient] = {
    "confluent-kafka": Confluent(),
    "kafka-python": KafkaPython(),
    "aiokafka": AioKafka(),
}


def within(seconds: float, condition: Callable[[], bool]) -> Callable[[], bool]:
    """The condition, or the time is up: a client that gets nothing must not go on for ever."""
    deadline = time.monotonic() + seconds
    return lambda: condition() or time.monotonic() > deadline


def numbered(count: int, keys: int = 7) -> list[Record]:
    """Records whose value says their place, over a few keys."""
    return [(b"key-%d" % (i % keys), b"%08d" % i) for i in range(count)]


def paced(stop: threading.Event, keys: int = 7) -> Iterable[Record]:
    """Records without end, about a thousand per second, until told to stop."""
    number = 0
    while not stop.wait(0.001):
        yield b"key-%d" % (number % keys), b"%08d" % number
        number += 1


def in_key_order(seen: list[Record]) -> bool:
    """Whether, repetitions aside, the values of every key rise."""
    latest: dict[bytes, bytes] = {}
    known: set[Record] = set()
    for key, value in seen:
        if (key, value) in known:
            continue
        if value < latest.get(key, b""):
            return False
        latest[key] = value
        known.add((key, value))
    return True
