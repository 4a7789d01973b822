"""The application that is tested: a shop that takes orders, and tills that bill each order once.

A till reads `orders` and writes `payments`, and what it cannot read to `orders.dead`, in one transaction with the
offset up to which it has read: whatever breaks, an order is billed once.
"""

from __future__ import annotations

import json
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition


class NotPlaced(Exception):
    """The shop does not know that the order has arrived."""


class Shop:
    """Takes orders."""

    def __init__(self, servers: str, **settings: Any) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **settings})

    def place(self, customer: str, amount: int, patience_s: float = 30) -> int:
        """Place an order, and return its offset. NotPlaced if that is not known in time."""
        placed: list[Message] = []
        order = json.dumps({"customer": customer, "amount": amount})
        self._producer.produce("orders", order, customer, on_delivery=lambda error, sent: placed.append(sent))
        self._producer.flush(patience_s)
        if not placed or placed[0].error():
            raise NotPlaced(f"{customer}'s order")
        return placed[0].offset()


class Till:
    """Bills orders; several tills share the work."""

    def __init__(self, servers: str, name: str = "till-1", **settings: Any) -> None:
        both = {"bootstrap.servers": servers}
        group = {"group.id": "tills", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        quick = {"topic.metadata.refresh.interval.ms": 500, "heartbeat.interval.ms": 500}
        self._consumer = Consumer({**both, **group, "isolation.level": "read_committed", **quick, **settings})
        self._consumer.subscribe(["orders"])
        self._producer = Producer({**both, "transactional.id": name, "transaction.timeout.ms": 60_000})
        self._producer.init_transactions()

    @property
    def partitions(self) -> list[int]:
        """Those that are this till's now."""
        return sorted(one.partition for one in self._consumer.assignment())

    def bill(self, orders: int, patience_s: float = 60) -> int:
        """Bill so many orders, if there are so many in this time; returns how many."""
        billed, deadline = 0, time.monotonic() + patience_s
        while billed < orders and time.monotonic() < deadline:
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                billed += self._bill(message)
        return billed

    def begin(self, orders: int) -> None:
        """Bill so many orders, and do not get to the commit, as a till does that dies there."""
        for _ in range(orders):
            while (message := self._consumer.poll(0.05)) is None or message.error() is not None:
                pass
            self._producer.begin_transaction()
            self._producer.produce("payments", message.value(), message.key())
        self._producer.flush()

    def close(self) -> None:
        """Hand the partitions over."""
        self._consumer.close()

    def _bill(self, message: Message) -> bool:
        place = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
        try:
            self._producer.begin_transaction()
            self._producer.produce(_target(message.value()), message.value(), message.key())
            self._producer.send_offsets_to_transaction([place], self._consumer.consumer_group_metadata())
            self._producer.commit_transaction()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction()
            self._consumer.seek(TopicPartition(message.topic(), message.partition(), message.offset()))
            return False
        return True


def _target(order: bytes) -> str:
    try:
        json.loads(order)["amount"]
    except (ValueError, KeyError, TypeError):
        return "orders.dead"
    return "payments"


def read(servers: str, topic: str) -> list[dict[str, Any] | bytes]:
    """All that a topic has, as who comes last would read it."""
    settings = {"group.id": "reads", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, "auto.offset.reset": "earliest", **settings})
    partitions = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, one, 0) for one in partitions])
    found: list[dict[str, Any] | bytes] = []
    while partitions:
        message = consumer.poll(30)
        assert message is not None, "the topic has an end"
        if message.error() is not None:
            partitions.pop()
            continue
        try:
            found.append(json.loads(message.value()))
        except ValueError:
            found.append(message.value())
    consumer.close()
    return found
