"""Clients that assume a broker of 2015 or 2016: they use message sets of format v0 or v1.

kafka-python is told the version of the cluster, librdkafka not to ask for it. Each of them writes what it and a modern
client read, and reads what a modern client writes, with every codec of the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.interop.other_clients import Confluent, Record, numbered, within
from tests.running import running

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
]

COUNT = 200
CODECS = ["none", "gzip", "snappy", "lz4"]
AS_IN_2015 = {"api.version.request": False, "broker.version.fallback": "0.9.0", "log_level": 3}


class OldKafkaPython:
    """kafka-python for a cluster of a certain version."""

    def __init__(self, *version: int) -> None:
        self.version = version

    def produce(self, servers: str, topic: str, records: list[Record], compression: str) -> None:
        """Send all, and wait for all answers."""
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=servers,
            api_version=self.version,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=False,
            acks="all",
            linger_ms=5,
        )
        try:
            for future in [producer.send(topic, key=key, value=value) for key, value in records]:
                future.get(timeout=60)
        finally:
            producer.close(timeout=5)

    def consume(self, servers: str, topic: str, count: int) -> list[Record]:
        """Read in a group from the beginning, and commit."""
        from kafka import KafkaConsumer

        seen: list[Record] = []
        enough = within(60, lambda: len(seen) >= count)
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            api_version=self.version,
            group_id=f"group-{topic}",
            auto_offset_reset="earliest",
            # A client that asks for metadata while an answer is on its way may forget that it has asked. As the leader
            # of its group it then assigns nothing, before it asks again; which is after five minutes by default.
            metadata_max_age_ms=1000,
        )
        try:
            while not enough():
                # It comes back with the first records. kafka-python 3.0.12 forgets an assignment that arrives just as
                # `poll` gives up, and is never asked again: it must not give up before it has one.
                for records in consumer.poll(timeout_ms=10000).values():
                    seen += [(record.key, record.value) for record in records]
            consumer.commit()
        finally:
            consumer.close()
        return seen


class OldLibrdkafka:
    """librdkafka that does not ask what the cluster knows."""

    def produce(self, servers: str, topic: str, records: list[Record], compression: str) -> None:
        """Send all, and wait for all answers."""
        from confluent_kafka import Producer

        failures: list[Any] = []
        producer = Producer(
            {"bootstrap.servers": servers, "compression.type": compression, "linger.ms": 5, **AS_IN_2015}
        )
        for key, value in records:
            producer.produce(topic, key=key, value=value, on_delivery=lambda error, _: error and failures.append(error))
        assert producer.flush(60) == 0
        assert not failures

    def consume(self, servers: str, topic: str, count: int) -> list[Record]:
        """Read in a group from the beginning, and commit."""
        seen: list[Record] = []
        enough = within(60, lambda: len(seen) >= count)
        Confluent().consume(servers, topic, f"group-{topic}", seen, enough, **AS_IN_2015)
        return seen


OLD_CLIENTS = {
    "kafka-python-0.9": OldKafkaPython(0, 9),
    "kafka-python-0.10": OldKafkaPython(0, 10),
    "librdkafka-0.9": OldLibrdkafka(),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """The bootstrap server of a cluster of one."""
    with running("up", "--brokers", "1", "--port", "0") as ready:
        yield ready["bootstrap"]


@pytest.mark.parametrize("compression", CODECS)
@pytest.mark.parametrize("name", OLD_CLIENTS)
def test_old_and_new_clients_read_each_others_records(servers: str, name: str, compression: str) -> None:
    old, topic = OLD_CLIENTS[name], f"{name}-{compression}"
    written = numbered(COUNT)
    old.produce(servers, topic, written, compression)
    assert old.consume(servers, topic, COUNT) == written

    acked: list[Record] = []
    Confluent().produce(servers, f"{topic}-new", written, acked, compression=compression)
    assert old.consume(servers, f"{topic}-new", COUNT) == written

    seen: list[Record] = []
    Confluent().consume(servers, topic, f"new-{topic}", seen, within(60, lambda: len(seen) >= COUNT))
    assert seen == written


def test_librdkafka_reports_unsupported_zstd(servers: str) -> None:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    acked: list[Record] = []
    Confluent().produce(servers, "new-codec", numbered(10), acked, compression="zstd")
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "none", **AS_IN_2015})
    consumer.assign([TopicPartition("new-codec", 0, 0)])
    try:
        done = within(60, lambda: False)
        while (message := consumer.poll(0.2)) is None:
            assert not done(), "no error came"
        assert message.error().code() == KafkaError.UNSUPPORTED_COMPRESSION_TYPE
    finally:
        consumer.close()
