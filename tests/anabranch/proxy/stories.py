"""Three clients with groups and transactions, and a proxy in front of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from collections.abc import AsyncIterator
from typing import Any

from anabranch.cluster.in_process import Cluster
from anabranch.proxy.proxy import Proxy
from anabranch.proxy.settings import ProxySettings

PARTITIONS = 3
VALUES = [b"%d" % number for number in range(30)]


def place(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    return host, int(port)


def settings(servers: str, **more: Any) -> ProxySettings:
    return ProxySettings(upstream=tuple(map(place, servers.split(","))), **more)


@contextlib.asynccontextmanager
async def proxied(brokers: int = 1, **more: Any) -> AsyncIterator[tuple[Cluster, Proxy]]:
    async with (
        asyncio.timeout(60),
        Cluster(brokers, seed=1) as cluster,
        Proxy(settings(cluster.bootstrap_servers.partition(",")[0], **more)) as proxy,
    ):
        yield cluster, proxy


def confluent(servers: str, topic: str, **more: Any) -> list[bytes]:
    import confluent_kafka

    common = {"bootstrap.servers": servers, **more}
    producer = confluent_kafka.Producer({**common, "client.id": "confluent", "transactional.id": f"tx-{topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number, value in enumerate(VALUES):
        producer.produce(topic, value, partition=number % PARTITIONS)
    producer.commit_transaction(60)
    consumer = confluent_kafka.Consumer(
        {**common, "client.id": "confluent", "group.id": f"group-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    try:
        while len(found) < len(VALUES):
            message = consumer.poll(60)
            assert message is not None and message.error() is None, message and message.error()
            found.append(message.value())
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(found, key=int)


def kafka_python(servers: str, topic: str, **more: Any) -> list[bytes]:
    import kafka

    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, client_id="kafka-python", transactional_id=f"tx-{topic}", **more
    )
    producer.init_transactions()
    producer.begin_transaction()
    for number, value in enumerate(VALUES):
        producer.send(topic, value, partition=number % PARTITIONS)
    producer.commit_transaction()
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        client_id="kafka-python",
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=60_000,
        **more,
    )
    found: list[bytes] = []
    for message in consumer:
        found.append(message.value)
        if len(found) == len(VALUES):
            break
    consumer.commit()
    consumer.close()
    return sorted(found, key=int)


async def aiokafka(servers: str, topic: str, **more: Any) -> list[bytes]:
    import aiokafka

    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=servers, client_id="aiokafka", transactional_id=f"tx-{topic}", **more
    )
    try:
        await producer.start()
        async with producer.transaction():
            for number, value in enumerate(VALUES):
                await producer.send(topic, value, partition=number % PARTITIONS)
    finally:
        await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        client_id="aiokafka",
        group_id=f"group-{topic}",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        **more,
    )
    await consumer.start()
    found: list[bytes] = []
    try:
        while len(found) < len(VALUES):
            found.append((await consumer.getone()).value)
        await consumer.commit()
    finally:
        await consumer.stop()
    return sorted(found, key=int)


async def everything(servers: str, prefix: str) -> None:
    """All three, beside each other; what each has sent it gets."""
    found = await asyncio.gather(
        asyncio.to_thread(confluent, servers, f"{prefix}-confluent"),
        asyncio.to_thread(kafka_python, servers, f"{prefix}-kafka-python"),
        aiokafka(servers, f"{prefix}-aiokafka"),
    )
    with warnings.catch_warnings():
        # Of kafka-python, on a busy machine: it forgets a socket that still connects when its client is closed.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    assert found == [VALUES] * 3


async def make_topics(servers: str, *names: str, partitions: int = PARTITIONS, **security: Any) -> None:
    from anabranch import Admin, NewTopic

    async with Admin(servers, **security) as admin:
        await admin.create_topics([NewTopic(name=one, partitions=partitions, replication_factor=1) for one in names])
        for one in names:
            await admin.wait_for_topic(one)
