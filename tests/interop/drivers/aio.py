"""aiokafka."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from tests.interop.drivers.common import Arguments, Door, doors, drive, emit, record, text


async def produce(asked: Arguments) -> None:
    """Print the outcome of every record."""
    producer = AIOKafkaProducer(
        bootstrap_servers=asked.servers,
        enable_idempotence=True,
        acks="all",
        linger_ms=1,
        compression_type=None if asked.codec in (None, "none") else asked.codec,
        request_timeout_ms=asked.timeout_ms or 40000,
    )
    async with producer:
        waiting: list[tuple[int, Any]] = []
        for number in asked.numbers():
            key, value = record(number)
            waiting.append((number, await producer.send(asked.topic, key=key, value=value)))
            await asyncio.sleep(0)
            if len(waiting) >= 20:
                await _collect(waiting)
        await _collect(waiting)


async def _collect(waiting: list[tuple[int, Any]]) -> None:
    for number, future in waiting:
        value = text(record(number)[1])
        try:
            await future
        except KafkaError as error:
            emit("failed", value=value, error=type(error).__name__)
        else:
            emit("acked", value=value)
    waiting.clear()


class Told(ConsumerRebalanceListener):  # type: ignore[misc]
    """Prints every rebalance."""

    def on_partitions_revoked(self, revoked: Any) -> None:
        emit("revoked", partitions=sorted(one.partition for one in revoked))

    def on_partitions_assigned(self, assigned: Any) -> None:
        """They are here."""
        emit("assigned", partitions=sorted(one.partition for one in assigned))


async def consume(asked: Arguments) -> None:
    """Print every record."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=asked.servers,
        group_id=asked.group,
        group_instance_id=asked.instance,
        auto_offset_reset="earliest",
        enable_auto_commit=True,
        auto_commit_interval_ms=200,
        session_timeout_ms=asked.session_ms or 30000,
        heartbeat_interval_ms=500,
        metadata_max_age_ms=1000,
        isolation_level=asked.isolation or "read_uncommitted",
    )
    consumer.subscribe([asked.topic], listener=Told())
    async with consumer:
        while not asked.stopped:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                for one in records:
                    emit(
                        "record",
                        partition=one.partition,
                        offset=one.offset,
                        key=text(one.key),
                        value=text(one.value),
                    )


async def transact(asked: Arguments) -> None:
    """Every second transaction is aborted."""
    async with AIOKafkaProducer(bootstrap_servers=asked.servers, transactional_id=asked.transactional_id) as producer:
        for number in range(asked.transactions):
            values = range(number * asked.per, (number + 1) * asked.per)
            await producer.begin_transaction()
            for one in values:
                key, value = record(one)
                await producer.send_and_wait(asked.topic, key=key, value=value)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
            emit("aborted" if number % 2 else "committed", values=[f"{one:08d}" for one in values])


async def admin(asked: Arguments) -> None:
    """The life of a topic."""
    client = AIOKafkaAdminClient(bootstrap_servers=asked.servers)
    await client.start()
    resource = ConfigResource(ConfigResourceType.TOPIC, asked.topic)

    async def retention() -> str | None:
        # Any broker is asked, also one that has not heard of the topic yet.
        (answer,) = await client.describe_configs([resource])
        return next((str(one[1]) for one in answer.resources[0][4] if one[0] == "retention.ms"), None)

    async def partitions() -> int:
        return len((await client.describe_topics([asked.topic]))[0]["partitions"])

    await client.create_topics([NewTopic(asked.topic, 2, 3, topic_configs={"retention.ms": "60000"})])
    while (count := await partitions()) != 2:
        pass
    emit("step", name="create", seen=count)
    while (value := await retention()) is None:
        pass
    emit("step", name="describe", seen=value)
    changed = ConfigResource(ConfigResourceType.TOPIC, asked.topic, configs={"retention.ms": "120000"})
    await client.alter_configs([changed])
    while (value := await retention()) != "120000":
        pass
    emit("step", name="alter", seen=value)
    # What not every in-sync replica has cannot be deleted: with acks=1 the high watermark may still be on its way.
    async with AIOKafkaProducer(bootstrap_servers=asked.servers, acks="all") as producer:
        for _ in range(5):
            await producer.send_and_wait(asked.topic, b"x", partition=1)
    partition = TopicPartition(asked.topic, 1)
    low = (await client.delete_records({partition: RecordsToDelete(2)}))[partition]
    emit("step", name="delete records", seen=low)
    await client.create_partitions({asked.topic: NewPartitions(4)})
    while (count := await partitions()) != 4:
        pass
    emit("step", name="grow", seen=count)
    await client.delete_topics([asked.topic])
    while asked.topic in await client.list_topics():
        pass
    emit("step", name="delete", seen=None)
    await client.close()


class Token(AbstractTokenProvider):  # type: ignore[misc]
    """One that was made before."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        """As it is."""
        return self._token


def through(door: Door, topic: str) -> None:
    """A record out and back."""
    settings: dict[str, Any] = {"bootstrap_servers": door.servers, "security_protocol": door.protocol}
    if door.ca:
        settings["ssl_context"] = ssl.create_default_context(cafile=door.ca)
    if door.identity:
        settings["ssl_context"].load_cert_chain(door.identity)
    if door.sasl:
        settings |= {"sasl_mechanism": door.mechanism}
        settings |= {"sasl_plain_username": door.user, "sasl_plain_password": door.password}

    async def main() -> None:
        if door.token:
            settings["sasl_oauth_token_provider"] = Token(door.token)
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, door.value)
        asked = {"group_id": door.name, "auto_offset_reset": "earliest", **settings}
        async with AIOKafkaConsumer(topic, **asked) as consumer:
            while (await consumer.getone()).value != door.value:
                pass

    asyncio.run(asyncio.wait_for(main(), door.patience_s))


def blocking(command: Callable[[Arguments], Awaitable[None]]) -> Callable[[Arguments], None]:
    """In a loop of its own."""

    def run(asked: Arguments) -> None:
        async def main() -> None:
            await command(asked)

        asyncio.run(main())

    return run


if __name__ == "__main__":
    commands = {"produce": produce, "consume": consume, "transact": transact, "admin": admin}
    drive({**{name: blocking(command) for name, command in commands.items()}, "doors": doors(through)})
