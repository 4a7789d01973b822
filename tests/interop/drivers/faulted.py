"""Four Python clients with default settings, for the table of client behavior under faults.

    python -m tests.interop.drivers.faulted CLIENT:send|read '{"servers": ..., "topic": ...}'

`send` sends one record to each of three partitions, and tells what became of each; `read` reads all three from their
beginnings until it has had a record of each, and tells of records and errors.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tests.interop.drivers.common import Arguments, drive, emit

PARTITIONS = (0, 1, 2)
VALUE = b"record" * 20
"""What there is to be read."""


def confluent_send(asked: Arguments) -> None:
    """librdkafka."""
    from confluent_kafka import Producer

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            emit("acked", partition=message.partition())
        else:
            emit("failed", partition=message.partition(), error=error.name())

    producer = Producer(
        {"bootstrap.servers": asked.servers, "error_cb": lambda error: emit("error", error=error.name())}
    )
    for partition in PARTITIONS:
        producer.produce(asked.topic, b"x", partition=partition, on_delivery=delivered)
    producer.flush()


def confluent_read(asked: Arguments) -> None:
    """librdkafka."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": asked.servers, "group.id": "table"})
    consumer.assign([TopicPartition(asked.topic, partition, OFFSET_BEGINNING) for partition in PARTITIONS])
    had: set[int] = set()
    while had < {*PARTITIONS} and not asked.stopped:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            emit("error", error=message.error().name())
        else:
            had.add(message.partition())
            emit("record", partition=message.partition(), intact=message.value() == VALUE)
    consumer.close()


def aiokafka_send(asked: Arguments) -> None:
    """aiokafka."""
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=asked.servers) as producer:
            sent = [await producer.send(asked.topic, b"x", partition=partition) for partition in PARTITIONS]
            for partition, future in zip(PARTITIONS, sent, strict=True):
                future.add_done_callback(_telling(partition))
            await asyncio.wait(sent)

    asyncio.run(run())


def _telling(partition: int) -> Any:
    def tell(future: Any) -> None:
        error = future.exception()
        if error is None:
            emit("acked", partition=partition)
        else:
            emit("failed", partition=partition, error=type(error).__name__)

    return tell


def aiokafka_read(asked: Arguments) -> None:
    """aiokafka."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=asked.servers) as consumer:
            places = [TopicPartition(asked.topic, partition) for partition in PARTITIONS]
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            await _read(asked, consumer.getone)

    asyncio.run(run())


async def _read(asked: Arguments, one: Any) -> None:
    had: set[int] = set()
    while had < {*PARTITIONS} and not asked.stopped:
        try:
            record = await one()
        except Exception as error:
            emit("error", error=type(error).__name__)
        else:
            had.add(record.partition)
            emit("record", partition=record.partition, intact=record.value == VALUE)


def kafka_python_send(asked: Arguments) -> None:
    """kafka-python."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=asked.servers)
    sent = [producer.send(asked.topic, b"x", partition=partition) for partition in PARTITIONS]
    for partition, future in zip(PARTITIONS, sent, strict=True):
        future.add_callback(lambda _, partition=partition: emit("acked", partition=partition))
        future.add_errback(
            lambda error, partition=partition: emit("failed", partition=partition, error=type(error).__name__)
        )
    producer.flush()
    producer.close()


def kafka_python_read(asked: Arguments) -> None:
    """kafka-python."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=asked.servers)
    places = [TopicPartition(asked.topic, partition) for partition in PARTITIONS]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    had: set[int] = set()
    while had < {*PARTITIONS} and not asked.stopped:
        try:
            found = consumer.poll(100)
        except Exception as error:
            emit("error", error=type(error).__name__)
            continue
        for record in (one for rows in found.values() for one in rows):
            had.add(record.partition)
            emit("record", partition=record.partition, intact=record.value == VALUE)
    consumer.close()


def anabranch_send(asked: Arguments) -> None:
    """Our own."""
    from anabranch import Producer

    async def run() -> None:
        async with Producer(asked.servers) as producer:
            sent = [await producer.send(asked.topic, b"x", partition=partition) for partition in PARTITIONS]
            for partition, future in zip(PARTITIONS, sent, strict=True):
                future.add_done_callback(_telling(partition))
            await asyncio.wait(sent)

    asyncio.run(run())


def anabranch_read(asked: Arguments) -> None:
    """Our own."""
    from anabranch import Consumer

    async def run() -> None:
        async with Consumer(asked.topic, bootstrap_servers=asked.servers, auto_offset_reset="earliest") as consumer:
            await _read(asked, consumer.getone)

    asyncio.run(run())


if __name__ == "__main__":
    drive(
        {
            f"{name}:{what}": globals()[f"{name.replace('-', '_')}_{what}"]
            for name in ("confluent", "aiokafka", "kafka-python", "anabranch")
            for what in ("send", "read")
        }
    )
