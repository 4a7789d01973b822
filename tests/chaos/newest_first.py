"""A member that comes when a topic has grown, and hands out what it reads together with the newest partitions first.

    python tests/chaos/newest_first.py PARTITIONS SERVERS TOPIC GROUP FILE

What is read together is written down before any of it is committed. So a child is never among it beside what its parent
held before, if its coordinator keeps that back until the commit; and if nobody does, keys lose their order for certain.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

sys.path.append(str(Path(__file__).parents[2] / "examples/members"))
from librdkafka import handed
from lines import Lines


def receive(partitions: int, servers: str, topic: str, group: str, path: str) -> None:
    """Receive until told to end."""
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    often = {"topic.metadata.refresh.interval.ms": 500, "heartbeat.interval.ms": 500, "session.timeout.ms": 6000}
    consumer, lines = Consumer({**settings, **often, "enable.auto.commit": False}), Lines(path)
    while not ending and len(consumer.list_topics(topic, timeout=10).topics[topic].partitions) < partitions:
        signal.sigtimedwait([signal.SIGUSR1], 0.2)
    consumer.subscribe([topic])
    while not ending:
        records = [handed(one) for one in consumer.consume(10_000, timeout=1.0) if one.error() is None]
        if records:
            lines.write(sorted(records, key=lambda one: (-one[2], one[3])))
            ends = {partition: offset + 1 for _, _, partition, offset in sorted(records, key=lambda one: one[3])}
            consumer.commit(offsets=[TopicPartition(topic, *end) for end in ends.items()], asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    receive(int(sys.argv[1]), *sys.argv[2:])
