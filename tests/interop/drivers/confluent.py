"""librdkafka (confluent-kafka)."""

from __future__ import annotations

import logging
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.interop.drivers.common import Arguments, Door, doors, drive, emit, record, text

OLD = {"api.version.request": False, "broker.version.fallback": "0.9.0"}
COPIER = {
    "transaction.timeout.ms": 20000,
    "reconnect.backoff.max.ms": 1000,
    # send_offsets_to_transaction waits, without an end, for a coordinator that it has known and that is gone from the
    # metadata; it looks for another one only when the state of some connection changes (librdkafka issues 5456, 5511).
    "connections.max.idle.ms": 3000,
}
WAIT_S = 60.0
CALL_S = 5.0

moves: list[str] = []
"""What the consumer was told of its partitions since somebody looked."""


def produce(asked: Arguments) -> None:
    """Print the outcome of every record."""

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            emit("acked", value=text(message.value()))
        else:
            emit("failed", value=text(message.value()), error=error.name())

    settings = {"bootstrap.servers": asked.servers, "linger.ms": 1, "enable.idempotence": not asked.old}
    settings |= {"compression.type": asked.codec or "none", **(OLD if asked.old else {})}
    producer = Producer(settings)
    for number in asked.numbers():
        key, value = record(number)
        producer.produce(asked.topic, key=key, value=value, on_delivery=delivered)
        producer.poll(0)
    producer.flush(WAIT_S)


def consumer_of(asked: Arguments) -> Consumer:
    """A member of the group."""
    settings = {
        "bootstrap.servers": asked.servers,
        "group.id": asked.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": asked.command != "copy",
        "auto.commit.interval.ms": 200,
        "partition.assignment.strategy": "cooperative-sticky" if asked.assignor == "cooperative" else "range",
        "isolation.level": asked.isolation or "read_uncommitted",
        "session.timeout.ms": asked.session_ms or 30000,
        "heartbeat.interval.ms": 500,
        "topic.metadata.refresh.interval.ms": 1000,
        **(OLD if asked.old else {}),
    }
    if asked.instance:
        settings["group.instance.id"] = asked.instance
    if asked.protocol:
        settings["group.protocol"] = asked.protocol
        for name in ("partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"):
            del settings[name]  # the broker says these
    consumer = Consumer(settings)

    def told(event: str) -> Any:
        def tell(_: Any, partitions: list[TopicPartition]) -> None:
            moves.append(event)
            emit(event, partitions=[one.partition for one in partitions])

        return tell

    consumer.subscribe([asked.topic], on_assign=told("assigned"), on_revoke=told("revoked"), on_lost=told("revoked"))
    return consumer


def consume(asked: Arguments) -> None:
    """Print every record."""
    consumer = consumer_of(asked)
    while not asked.stopped:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            emit(
                "record",
                partition=message.partition(),
                offset=message.offset(),
                key=text(message.key()),
                value=text(message.value()),
            )
    consumer.close()


def transact(asked: Arguments) -> None:
    """Every second transaction is aborted."""
    producer = Producer({"bootstrap.servers": asked.servers, "transactional.id": asked.transactional_id})
    producer.init_transactions(WAIT_S)
    for number in range(asked.transactions):
        values = range(number * asked.per, (number + 1) * asked.per)
        producer.begin_transaction()
        for one in values:
            key, value = record(one)
            producer.produce(asked.topic, key=key, value=value)
        producer.flush(WAIT_S)
        if number % 2:
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
        emit("aborted" if number % 2 else "committed", values=[f"{one:08d}" for one in values])


def copy(asked: Arguments) -> None:
    """From topic to topic: offsets and records in one transaction; what fails is done again from what was committed."""
    consumer = consumer_of(asked)
    while not asked.stopped:
        producer = Producer({"bootstrap.servers": asked.servers, "transactional.id": asked.transactional_id, **COPIER})
        try:
            retried(lambda producer=producer: producer.init_transactions(CALL_S))
            while not asked.stopped:
                copy_some(asked, producer, consumer)
        except KafkaException as error:  # this producer is finished
            emit("restarted", error=error.args[0].name())
            rewind(consumer)
    consumer.close()


def copy_some(asked: Arguments, producer: Producer, consumer: Consumer) -> None:
    """One transaction. Raises KafkaException if the producer is unusable. Records of a call that moved partitions are
    skipped: they may be another member's. The group metadata is read before: librdkafka drops it at the session's end,
    and brokers accept offsets without it, as before KIP-447.
    """
    moves.clear()
    member = consumer.consumer_group_metadata()
    messages = [one for one in consumer.consume(20, 0.2) if one.error() is None]
    if moves:
        rewind(consumer)
        return
    if not messages:
        return
    producer.begin_transaction()
    try:
        for one in messages:
            producer.produce(asked.target, key=one.key(), value=b"copy of " + one.value())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, member, CALL_S)
        retried(lambda: producer.commit_transaction(CALL_S))
    except KafkaException as error:
        if error.args[0].fatal():
            raise
        retried(lambda: producer.abort_transaction(CALL_S))
        emit("aborted", error=error.args[0].name())
        rewind(consumer)
    else:
        emit("copied", values=[text(one.value()) for one in messages])


def retried(call: Any) -> None:
    """Some errors only ask for the same call again."""
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            emit("retried", error=str(error))
        else:
            return


def rewind(consumer: Consumer) -> None:
    """Back to what was committed."""
    while partitions := consumer.assignment():
        try:
            committed = consumer.committed(partitions, CALL_S)
            emit("rewound", offsets={one.partition: one.offset for one in committed})
            for one in committed:
                if one.error is not None:
                    raise KafkaException(one.error)
                consumer.seek(TopicPartition(one.topic, one.partition, max(one.offset, OFFSET_BEGINNING)))
        except KafkaException:
            consumer.poll(0.2)  # no coordinator now, or partitions that just went away
        else:
            return


def admin(asked: Arguments) -> None:
    """The life of a topic."""
    client = AdminClient({"bootstrap.servers": asked.servers})
    resource = ConfigResource(ResourceType.TOPIC, asked.topic)

    def only(futures: Any) -> Any:
        (future,) = futures.values()
        return future.result(WAIT_S)

    def retention() -> str | None:
        # Any broker is asked, also one that has not heard of the topic yet.
        try:
            return str(only(client.describe_configs([resource]))["retention.ms"].value)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return None

    only(client.create_topics([NewTopic(asked.topic, 2, 3, config={"retention.ms": "60000"})]))
    while (count := len(client.list_topics(asked.topic).topics[asked.topic].partitions)) != 2:
        pass
    emit("step", name="create", seen=count)
    while (value := retention()) is None:
        pass
    emit("step", name="describe", seen=value)
    entry = ConfigEntry("retention.ms", "120000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, asked.topic, incremental_configs=[entry])
    only(client.incremental_alter_configs([changed]))
    while (value := retention()) != "120000":
        pass
    emit("step", name="alter", seen=value)
    producer = Producer({"bootstrap.servers": asked.servers})
    for _ in range(5):
        producer.produce(asked.topic, value=b"x", partition=1)
    producer.flush(WAIT_S)
    low = only(client.delete_records([TopicPartition(asked.topic, 1, 2)]))
    emit("step", name="delete records", seen=low.low_watermark)
    only(client.create_partitions([NewPartitions(asked.topic, 4)]))
    while (count := len(client.list_topics(asked.topic).topics[asked.topic].partitions)) != 4:
        pass
    emit("step", name="grow", seen=count)
    only(client.delete_topics([asked.topic]))
    while asked.topic in client.list_topics().topics:
        pass
    emit("step", name="delete", seen=None)


def through(door: Door, topic: str) -> None:
    """A record out and back."""
    errors: list[KafkaError] = []
    log = logging.getLogger("librdkafka")
    settings: dict[str, Any] = {
        "bootstrap.servers": door.servers,
        "security.protocol": door.protocol,
        "error_cb": errors.append,
    }
    if door.ca:
        settings["ssl.ca.location"] = door.ca
    if door.identity:
        settings |= {"ssl.certificate.location": door.identity, "ssl.key.location": door.identity}
    if door.sasl:
        settings |= {"sasl.mechanism": door.mechanism, "sasl.username": door.user, "sasl.password": door.password}
    if door.token_url:
        settings |= {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": door.token_url}
        settings |= {"sasl.oauthbearer.client.id": door.user, "sasl.oauthbearer.client.secret": door.password}
    if door.token:
        settings |= {"sasl.mechanism": door.mechanism, "oauth_cb": lambda _: (door.token, time.time() + 3600)}
    until = time.monotonic() + door.patience_s
    producer = Producer({name: value for name, value in settings.items() if value is not None}, logger=log)
    producer.produce(topic, door.value)
    while producer.flush(0.1):
        refused = any(one.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) for one in errors)
        if refused or time.monotonic() > until:
            raise PermissionError([one.str() for one in errors])
    consumer = Consumer({**settings, "group.id": door.name, "auto.offset.reset": "earliest"}, logger=log)
    consumer.subscribe([topic])
    while (found := consumer.poll(1)) is None or found.value() != door.value:
        if time.monotonic() > until:
            raise TimeoutError([one.str() for one in errors])
    consumer.close()


if __name__ == "__main__":
    drive(
        {
            "produce": produce,
            "consume": consume,
            "transact": transact,
            "copy": copy,
            "admin": admin,
            "doors": doors(through),
        }
    )
