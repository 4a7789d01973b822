"""librdkafka in a thread, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

Record = tuple[bytes, bytes]


class Confluent:
    """librdkafka."""

    def produce(
        self, servers: str, topic: str, records: Iterable[Record], acked: list[Record], compression: str = "none"
    ) -> None:
        """Send every record with acks=all and idempotence; `acked` grows as answers come."""
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
        """Consume in a group from the beginning, and commit, until `enough()`."""
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


def within(seconds: float, condition: Callable[[], bool]) -> Callable[[], bool]:
    """The condition, or the time is up: a client that gets nothing must not go on for ever."""
    deadline = time.monotonic() + seconds
    return lambda: condition() or time.monotonic() > deadline


def numbered(count: int, keys: int = 7) -> list[Record]:
    """Records with numbered values, over a few keys."""
    return [(b"key-%d" % (i % keys), b"%08d" % i) for i in range(count)]
