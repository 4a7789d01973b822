"""confluent-kafka on a topic that is resized: each key where the topic wants it, each record behind the one before.

    anabranch topics create orders --partitions 2 --config reshard.legacy.producers=verify

With `verify` the brokers refuse a batch in which a key belongs elsewhere, so nothing goes wrong unseen. Such a batch
may take other keys' records with it. Therefore the next record of a key is sent when the one before is stored, and what
was refused is sent again, to where its key belongs now.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from anabranch.clients.partitioners.confluent import REFUSALS, LineagePartitioner

REFUSALS_MAX: Final = 100


class ResizedTopic:
    """One topic, as a stock producer writes to it."""

    def __init__(self, servers: str, topic: str, **settings: Any) -> None:
        given = {"bootstrap.servers": servers, **settings}
        self.producer = Producer({**given, "enable.idempotence": True})
        self.partitioner = LineagePartitioner(self.producer, AdminClient(given))
        self.topic = topic
        self.waiting: dict[bytes, deque[bytes]] = {}
        self.refused: dict[bytes, int] = {}
        self.due: list[bytes] = []

    def send(self, key: bytes, value: bytes) -> None:
        """Store a record behind what was sent of its key before."""
        values = self.waiting.setdefault(key, deque())
        values.append(value)
        if len(values) == 1:
            self.produce(key)
        self.poll(0)

    def flush(self) -> None:
        """Return when everything is stored."""
        while self.waiting:
            self.poll(0.1)

    def poll(self, seconds: float) -> None:
        """Hear what has become of records, and send what is due: never from within a callback."""
        self.producer.poll(seconds)
        due, self.due = self.due, []
        for key in due:
            self.produce(key)

    def produce(self, key: bytes) -> None:
        """Send the oldest record of a key."""
        self.partitioner.produce(self.topic, self.waiting[key][0], key, on_delivery=self.on_delivery)

    def on_delivery(self, error: Any, message: Message) -> None:
        """What has become of the oldest record of a key."""
        key = message.key()
        if error is None:
            self.refused.pop(key, None)
            self.waiting[key].popleft()
            if not self.waiting[key]:
                del self.waiting[key]
                return
        else:
            self.refused[key] = self.refused.get(key, 0) + 1
            if error.code() not in REFUSALS or self.refused[key] > REFUSALS_MAX:
                raise KafkaException(error)
        self.due.append(key)
