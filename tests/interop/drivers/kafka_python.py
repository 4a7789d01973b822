"""kafka-python."""

from __future__ import annotations

from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.interop.drivers.common import Arguments, Door, doors, drive, emit, record, text

WAIT_S = 60


def produce(asked: Arguments) -> None:
    """Print the outcome of every record."""
    settings: dict[str, Any] = {"enable_idempotence": True}
    if asked.old:
        settings = {"enable_idempotence": False, "api_version": (0, 9)}
    producer = KafkaProducer(
        bootstrap_servers=asked.servers.split(","),
        acks="all",
        linger_ms=1,
        retry_backoff_ms=50,
        compression_type=None if asked.codec in (None, "none") else asked.codec,
        **settings,
    )
    waiting: list[tuple[int, Any]] = []
    for number in asked.numbers():
        key, value = record(number)
        waiting.append((number, producer.send(asked.topic, key=key, value=value)))
        if len(waiting) >= 20:
            _collect(waiting)
    _collect(waiting)
    producer.close(timeout=5)


def _collect(waiting: list[tuple[int, Any]]) -> None:
    for number, future in waiting:
        value = text(record(number)[1])
        try:
            future.get(timeout=WAIT_S)
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


def consume(asked: Arguments) -> None:
    """Print every record."""
    assignor = CooperativeStickyAssignor if asked.assignor == "cooperative" else RangePartitionAssignor
    consumer = KafkaConsumer(
        bootstrap_servers=asked.servers.split(","),
        group_id=asked.group,
        group_instance_id=asked.instance,
        auto_offset_reset="earliest",
        enable_auto_commit=True,
        auto_commit_interval_ms=200,
        session_timeout_ms=asked.session_ms or 30000,
        heartbeat_interval_ms=500,
        metadata_max_age_ms=1000,
        isolation_level=asked.isolation or "read_uncommitted",
        partition_assignment_strategy=[assignor],
        **({"api_version": (0, 9)} if asked.old else {}),
    )
    consumer.subscribe([asked.topic], listener=Told())
    while not asked.stopped:
        # kafka-python 3.0.12 forgets an assignment that arrives just as `poll` gives up: let it give up seldom.
        for records in consumer.poll(timeout_ms=1000).values():
            for one in records:
                emit("record", partition=one.partition, offset=one.offset, key=text(one.key), value=text(one.value))
    consumer.close()


def transact(asked: Arguments) -> None:
    """Every second transaction is aborted."""
    producer = KafkaProducer(bootstrap_servers=asked.servers.split(","), transactional_id=asked.transactional_id)
    producer.init_transactions()
    for number in range(asked.transactions):
        values = range(number * asked.per, (number + 1) * asked.per)
        producer.begin_transaction()
        for one in values:
            key, value = record(one)
            producer.send(asked.topic, key=key, value=value).get(timeout=WAIT_S)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        emit("aborted" if number % 2 else "committed", values=[f"{one:08d}" for one in values])
    producer.close(timeout=5)


def admin(asked: Arguments) -> None:
    """The life of a topic."""
    client = KafkaAdminClient(bootstrap_servers=asked.servers.split(","))
    resource = ConfigResource(ConfigResourceType.TOPIC, asked.topic)

    def retention() -> str | None:
        # Any broker is asked, also one that has not heard of the topic yet: its error is shown as a topic without
        # settings.
        (found,) = client.describe_configs([resource]).values()
        known = found[asked.topic].get("retention.ms")
        return None if known is None else str(known["value"])

    def partitions() -> int:
        return len(client.describe_topics([asked.topic])[0]["partitions"])

    client.create_topics([NewTopic(asked.topic, 2, 3, topic_configs={"retention.ms": "60000"})])
    while (count := partitions()) != 2:
        pass
    emit("step", name="create", seen=count)
    while (value := retention()) is None:
        pass
    emit("step", name="describe", seen=value)
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, asked.topic, configs={"retention.ms": "120000"})])
    while (value := retention()) != "120000":
        pass
    emit("step", name="alter", seen=value)
    producer = KafkaProducer(bootstrap_servers=asked.servers.split(","))
    for _ in range(5):
        producer.send(asked.topic, b"x", partition=1).get(timeout=WAIT_S)
    producer.close(timeout=5)
    partition = TopicPartition(asked.topic, 1)
    emit("step", name="delete records", seen=low_watermark(client.delete_records({partition: 2})[partition]))
    client.create_partitions({asked.topic: NewPartitions(4)})
    while (count := partitions()) != 4:
        pass
    emit("step", name="grow", seen=count)
    client.delete_topics([asked.topic])
    while asked.topic in client.list_topics():
        pass
    emit("step", name="delete", seen=None)
    client.close()


def low_watermark(answer: Any) -> Any:
    """Its place differs between releases."""
    return answer["low_watermark"] if isinstance(answer, dict) else getattr(answer, "low_watermark", answer)


class Token(AbstractTokenProvider):  # type: ignore[misc]
    """One that was made before."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        """As it is."""
        return self._token


def through(door: Door, topic: str) -> None:
    """A record out and back."""
    settings: dict[str, Any] = {
        "bootstrap_servers": door.servers.split(","),
        "security_protocol": door.protocol,
        "ssl_cafile": door.ca,
        "ssl_certfile": door.identity,
        "bootstrap_timeout_ms": int(door.patience_s * 1000),
    }
    if door.sasl:
        settings |= {"sasl_mechanism": door.mechanism}
        settings |= {"sasl_plain_username": door.user, "sasl_plain_password": door.password}
    if door.token:
        settings["sasl_oauth_token_provider"] = Token(door.token)
    producer = KafkaProducer(**settings)
    producer.send(topic, door.value).get(door.patience_s)
    producer.close()
    consumer = KafkaConsumer(topic, group_id=door.name, auto_offset_reset="earliest", **settings)
    while next(consumer).value != door.value:
        pass
    consumer.close()


if __name__ == "__main__":
    drive({"produce": produce, "consume": consume, "transact": transact, "admin": admin, "doors": doors(through)})
