"""Stories of resizes: an ordered split and merge, a resize as in Kafka, and a transaction across a resize."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from anabranch.control.tour.scene import Scene, out_of_order
from anabranch.control.tour.step import Step

if TYPE_CHECKING:
    from anabranch.clients.consumer.consumer import Consumer
    from anabranch.clients.producer.producer import Producer

ORDER_TOPIC: Final = "tour-order"
KAFKA_TOPIC: Final = "tour-kafka"
TRANSACTION_TOPIC: Final = "tour-transaction"
KEYS: Final = 24
IDLE_POLLS: Final = 3
"""The number of empty polls after which no more records are expected."""
Records = list[tuple[bytes | None, bytes | None]]


async def _write(producer: Producer, topic: str, first: int, count: int) -> None:
    sent = [
        await producer.send(topic, b"%d" % number, b"key-%d" % (number % KEYS))
        for number in range(first, first + count)
    ]
    await asyncio.gather(*sent)


async def play_split_and_merge(scene: Scene) -> AsyncGenerator[Step, None]:
    """A split and a merge, in order."""
    await scene.topic(ORDER_TOPIC, 2)
    producer = await scene.producer()
    group = {"group_id": "tour-order", "enable_auto_commit": False, "max_poll_records": 12}
    consumer = await scene.consumer(ORDER_TOPIC, **group)
    await _write(producer, ORDER_TOPIC, 0, 96)
    got: Records = [(one.key, one.value) for one in await scene.read(consumer, 48)]
    await consumer.commit()
    yield scene.step(
        "Two partitions",
        f"{KEYS} keys are spread over two partitions, and each key's records are numbered. A group has read and "
        "committed half of them; the rest is unread.",
        f"lineage/{ORDER_TOPIC}",
    )
    await scene.resize(ORDER_TOPIC, 5)
    await _write(producer, ORDER_TOPIC, 96, 96)
    await scene.until(lambda: _generation(scene, ORDER_TOPIC) == 1, "generation 1")
    scene.claim("the topic is in generation 1, with five partitions", _live(scene, ORDER_TOPIC) == 5)
    yield scene.step(
        "A split",
        "The topic is split: partitions 2, 3 and 4 have taken keys from 0 and 1, which were cut at the offsets that "
        "you see. The producer continued to write. It delayed moved keys until their older records were stored.",
        f"lineage/{ORDER_TOPIC}",
    )
    got += await _read_to_gates(scene, consumer)
    scene.claim("gates are closed", bool(consumer.gates()))
    scene.claim("what was delivered so far is in order", out_of_order(got) == 0)
    yield scene.step(
        "Gates",
        "The group has read up to the cuts, and has not committed that yet: the new partitions stand behind closed "
        "gates. Each opens when the records before the cut, in the old partition of its keys, are read and committed. "
        "No record can overtake an older one of its key.",
        "groups/tour-order",
    )
    await consumer.commit()
    got += await _read_through(scene, consumer, 192 - len(got))
    await scene.resize(ORDER_TOPIC, 3)
    await _write(producer, ORDER_TOPIC, 192, 96)
    got += await _read_through(scene, consumer, 288 - len(got))
    await scene.refresh()
    scene.claim("the topic is in generation 2, with three partitions", _live(scene, ORDER_TOPIC) == 3)
    scene.claim("all 288 records came, each once", len(set(got)) == len(got) == 288)
    scene.claim("none of them out of order", out_of_order(got) == 0)
    yield scene.step(
        "A merge",
        "Partitions 3 and 4 gave their keys back; what they still hold is drained and then removed. All 288 records "
        "were delivered once, and no key's records came out of order, through both resizes.",
        f"lineage/{ORDER_TOPIC}",
    )


async def _read_to_gates(scene: Scene, consumer: Consumer) -> Records:
    """Read everything that is readable without a commit."""
    got: Records = []

    async def read() -> None:
        idle = 0
        while not consumer.gates() or idle < IDLE_POLLS:
            batches = await consumer.getmany(timeout_ms=100)
            got.extend((one.key, one.value) for records in batches.values() for one in records)
            idle = 0 if batches else idle + 1

    await scene.done(read(), "a closed gate")
    return got


async def _read_through(scene: Scene, consumer: Consumer, count: int) -> Records:
    """Read `count` records, and commit after each poll."""
    got: Records = []

    async def read() -> None:
        while len(got) < count:
            batches = await consumer.getmany(timeout_ms=100)
            got.extend((one.key, one.value) for records in batches.values() for one in records)
            await consumer.commit()

    await scene.done(read(), f"{count} records")
    return got


async def play_kafka_resize(scene: Scene) -> AsyncGenerator[Step, None]:
    """A resize as Kafka does it today, without order."""
    await scene.topic(KAFKA_TOPIC, 2, configs={"enable.ordered.delivery": "false"})
    producer = await scene.producer()
    await _write(producer, KAFKA_TOPIC, 0, 96)
    yield scene.step(
        "The same keys, without generations",
        f"{KAFKA_TOPIC} has enable.ordered.delivery=false: a key's partition is its hash modulo the count, as in any "
        "Kafka cluster. 96 records of the same keys are in its two partitions.",
        f"topics/{KAFKA_TOPIC}",
    )
    await scene.resize(KAFKA_TOPIC, 5)
    await producer.wait_for_partitions(KAFKA_TOPIC, 5)
    await _write(producer, KAFKA_TOPIC, 96, 96)
    yield scene.step(
        "Five partitions",
        "The count was raised, and 96 more records written. Most keys hash elsewhere now: their new records are in "
        "one partition, and the older ones in another, without an order between them.",
        f"topics/{KAFKA_TOPIC}",
    )
    got: Records = []

    async def read(consumer: Consumer, pause_s: float) -> None:
        while True:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                got.extend((one.key, one.value) for one in records)
            await asyncio.sleep(pause_s)

    group = {"group_id": "tour-kafka", "partition_assignment_strategy": "range"}
    scene.run_background(read(await scene.consumer(KAFKA_TOPIC, client_id="a-slow", max_poll_records=2, **group), 0.05))
    scene.run_background(read(await scene.consumer(KAFKA_TOPIC, client_id="b-fast", **group), 0.0))
    await scene.until(lambda: len(set(got)) == 192, "all records")
    wrong = out_of_order(got)
    scene.claim("records of a key came after later ones of the same key", wrong > 0)
    yield scene.step(
        "What consumers received",
        f"Two members of a group read, one slower than the other. {wrong} of 192 records came after a later record of "
        "their key. No client did anything wrong: adding partitions in Kafka changes the partition of keys.",
        "groups/tour-kafka",
    )


async def play_transaction_across_resize(scene: Scene) -> AsyncGenerator[Step, None]:
    """A transaction across a resize."""
    await scene.topic(TRANSACTION_TOPIC, 2)
    producer = await scene.producer(transactional_id="tour-till")
    reader = await scene.consumer(TRANSACTION_TOPIC, isolation_level="read_committed")
    await producer.begin_transaction()
    await _write(producer, TRANSACTION_TOPIC, 0, 24)
    yield scene.step(
        "An open transaction",
        "A producer has begun a transaction and written 24 records to two partitions. They are stored and replicated, "
        "and who reads committed data only sees none of them.",
        "transactions",
    )
    await scene.resize(TRANSACTION_TOPIC, 4)
    await _write(producer, TRANSACTION_TOPIC, 24, 24)
    early = [one for records in (await reader.getmany(timeout_ms=300)).values() for one in records]
    await scene.refresh()
    scene.claim("nothing of it can be seen yet", not early)
    scene.claim("the topic is in generation 1", _generation(scene, TRANSACTION_TOPIC) == 1)
    yield scene.step(
        "A resize during the transaction",
        "The topic was split while the transaction was open. The producer wrote 24 more, under the new generation, "
        "into partitions that did not exist when it began; the transaction has grown by them.",
        f"lineage/{TRANSACTION_TOPIC}",
    )
    await producer.commit_transaction()
    got = [(one.key, one.value) for one in await scene.read(reader, 48)]
    scene.claim("all 48 records came with the commit, each once", len(set(got)) == len(got) == 48)
    scene.claim("none of them out of order", out_of_order(got) == 0)
    yield scene.step(
        "Committed",
        "Markers went to every partition that the transaction touched, on both sides of the cut. All 48 records can be "
        "seen, in the order of their keys.",
        f"topics/{TRANSACTION_TOPIC}",
    )
    await producer.begin_transaction()
    await _write(producer, TRANSACTION_TOPIC, 48, 24)
    await scene.resize(TRANSACTION_TOPIC, 3)
    await producer.abort_transaction()
    await _write_one(producer)
    got = [(one.key, one.value) for one in await scene.read(reader, 1)]
    scene.claim("nothing of an aborted one was ever seen", got == [(b"key-0", b"1000")])
    yield scene.step(
        "Aborted across a merge",
        "Another one wrote 24 records, the topic was merged to three partitions, and the transaction was aborted. Who "
        "reads committed data got none of them, and then the next transaction's only record.",
        "transactions",
    )


async def _write_one(producer: Producer) -> None:
    await producer.begin_transaction()
    await producer.send_and_wait(TRANSACTION_TOPIC, b"1000", b"key-0")
    await producer.commit_transaction()


def _generation(scene: Scene, topic: str) -> int:
    return scene.topic_row(topic)["generation"]


def _live(scene: Scene, topic: str) -> int:
    return scene.topic_row(topic)["history"][-1]["partitions"]
