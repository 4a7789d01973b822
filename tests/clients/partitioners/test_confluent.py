"""librdkafka with lineage partitioning, on a topic that is resized 4 -> 6 -> 3."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from anabranch.clients.partitioners.confluent import REFUSALS, LineagePartitioner
from tests.clients.partitioners.load import COUNTS, Load, OneByOne, create, judged, resize

pytestmark = [pytest.mark.interop, pytest.mark.anabranch(brokers=3)]


class Sender:
    """A producer and its partitioner; resizes go on beside it, in a thread."""

    def __init__(self, servers: str, topic: str) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient

        settings = {"bootstrap.servers": servers, "log_level": 0}
        self.servers, self.topic = servers, topic
        self.producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 1})
        self.partitioner = LineagePartitioner(self.producer, AdminClient(settings))

    def resizing(self, count: int) -> threading.Thread:
        thread = threading.Thread(target=lambda: asyncio.run(resize(self.servers, self.topic, count)))
        thread.start()
        return thread


def sender(anabranch: Any, policy: str = "verify") -> Sender:
    return Sender(anabranch.bootstrap_servers, asyncio.run(create(anabranch.bootstrap_servers, policy)))


def test_no_record_is_misplaced_and_every_refused_record_is_reported(anabranch: Any) -> None:
    """Sent at full speed, without waiting for earlier records."""
    one, load = sender(anabranch), Load()

    def told(error: Any, message: Any) -> None:
        assert message.value() not in load.outcomes
        load.outcomes[message.value()] = "" if error is None else error.name()

    def send(count: int) -> None:
        for key, value in load.rows(count):
            one.partitioner.produce(one.topic, value, key, on_delivery=told)
        one.producer.poll(0)

    sent = 0
    for count in COUNTS:
        resizing = one.resizing(count) if count != COUNTS[0] else None
        while resizing is not None and resizing.is_alive():
            send(10)
            sent += 10
            one.producer.poll(0.001)
        for _ in range(20):
            send(10)
            sent += 10
            one.producer.poll(0.002)
        assert one.producer.flush(30) == 0
        before = len(load.refused)
        send(100)
        sent += 100
        assert one.producer.flush(30) == 0
        assert len(load.refused) == before, "what was refused has taught it"
    assert len(load.outcomes) == sent
    assert load.refused, "the topic was resized under it"
    asyncio.run(judged(one.servers, one.topic, load.stored))


def test_one_record_per_key_in_flight_keeps_order(anabranch: Any) -> None:
    one, load = sender(anabranch), Load()
    queue = OneByOne(load)

    def told(error: Any, message: Any) -> None:
        assert error is None or error.code() in REFUSALS
        load.outcomes[message.value()] = "" if error is None else error.name()
        queue.settled(message.key(), error is not None)

    def work() -> None:
        for key, value in queue.due():
            one.partitioner.produce(one.topic, value, key, on_delivery=told)
        one.producer.poll(0.01)

    for count in COUNTS:
        resizing = one.resizing(count) if count != COUNTS[0] else None
        queue.add(240)
        while not queue.done or (resizing is not None and resizing.is_alive()):
            if queue.done:
                queue.add(24)
            work()
        queue.add(240)
        while not queue.done:
            work()
    assert queue.refusals
    assert not load.refused, "sent again until it is stored"
    by_key = asyncio.run(judged(one.servers, one.topic, load.stored))
    assert all(values == sorted(values) for values in by_key.values())


def test_keyless_records_go_to_live_partitions(anabranch: Any) -> None:
    one, outcomes = sender(anabranch), []
    for count in COUNTS[1:]:
        asyncio.run(resize(one.servers, one.topic, count))
        for number in range(300):
            one.partitioner.produce(
                one.topic, b"%d" % number, on_delivery=lambda error, message: outcomes.append((error, message))
            )
        assert one.producer.flush(30) == 0
        one.partitioner.refresh(one.topic)
    assert all(error is None for error, _ in outcomes)
    assert {message.partition() for _, message in outcomes[-300:]} <= set(range(COUNTS[-1]))


def test_send_within_callback_is_refused(anabranch: Any) -> None:
    """It might read the lineage, and confluent-kafka aborts the process when a callback calls its cluster."""
    one, outcomes = sender(anabranch), []

    def told(error: Any, message: Any) -> None:
        with pytest.raises(RuntimeError, match="after poll returns"):
            one.partitioner.produce(one.topic, b"second", b"key")
        outcomes.append(error)

    one.partitioner.produce(one.topic, b"first", b"key", on_delivery=told)
    assert one.producer.flush(30) == 0
    assert outcomes == [None]
    one.partitioner.produce(one.topic, b"second", b"key")
    assert one.producer.flush(30) == 0


def test_unknown_topic_is_an_error(anabranch: Any) -> None:
    from confluent_kafka import KafkaException

    one = Sender(anabranch.bootstrap_servers, "nowhere")
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
        one.partitioner.partition("nowhere", b"key")
