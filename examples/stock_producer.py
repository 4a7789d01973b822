"""confluent-kafka on a topic that may grow: each key where the topic wants it, each record behind the one before.

    anabranch topics create orders --partitions 2 --config reshard.legacy.producers=verify

With `verify` the brokers refuse a batch in which a key belongs elsewhere, so nothing goes wrong unseen. Such a batch
may take other keys' records with it. Therefore the next record of a key is sent when the one before is stored, and what
was refused is sent again by the new count. A topic that shrinks shows the partitions that were merged away until they
are drained: this producer is for topics that grow.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from anabranch.protocol.hashing import murmur2
from anabranch.protocol.linear_hashing import address, base_of

REFUSED: Final = (KafkaError.POLICY_VIOLATION, KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD)
"""The batch; the record in it that librdkafka was told to be wrong; the others beside that."""
REFUSALS_MAX: Final = 100


class GrowingTopic:
    """One topic, which began with `initial_count` partitions, as a stock producer writes to it."""

    def __init__(self, servers: str, topic: str, initial_count: int, **settings: Any) -> None:
        self.producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **settings})
        self.topic = topic
        self.base = base_of(initial_count)
        self.count = self.partitions()
        self.waiting: dict[bytes, deque[bytes]] = {}
        self.refused: dict[bytes, int] = {}
        self.again: list[bytes] = []

    def partitions(self) -> int:
        """How many the topic has now."""
        return len(self.producer.list_topics(self.topic, 10).topics[self.topic].partitions)

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
        """Hear what has become of records, and send again what was refused."""
        self.producer.poll(seconds)
        if self.again:
            keys, self.again = self.again, []
            self.count = self.partitions()
            for key in keys:
                self.produce(key)

    def produce(self, key: bytes) -> None:
        """Send the oldest record of a key."""
        place = address(murmur2(key), self.base, self.count)
        self.producer.produce(self.topic, self.waiting[key][0], key, place, on_delivery=self.told)

    def told(self, error: Any, message: Message) -> None:
        """What has become of the oldest record of a key."""
        key = message.key()
        if error is None:
            self.refused.pop(key, None)
            self.waiting[key].popleft()
            if self.waiting[key]:
                self.produce(key)
            else:
                del self.waiting[key]
            return
        self.refused[key] = self.refused.get(key, 0) + 1
        if error.code() not in REFUSED or self.refused[key] > REFUSALS_MAX:
            raise KafkaException(error)
        self.again.append(key)
