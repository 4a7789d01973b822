"""A member that joins after a topic has grown, and delivers the newest partitions first.

    python tests/chaos/newest_first.py PARTITIONS SERVERS TOPIC GROUP FILE

All that stands in what it was assigned is read before any of it is written down and committed. So a child is never
among it beside what its parent held before, if its coordinator keeps that back until the commit; and if nobody does,
keys lose their order for certain. One member of the group reads, and has every partition: two would take turns by
chance.
"""

from __future__ import annotations

import fcntl
import signal
import sys
from io import TextIOWrapper
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

sys.path.append(str(Path(__file__).parents[2] / "examples/members"))
from librdkafka import handed
from lines import Lines

PAUSE_S = 0.2
OFTEN = {"topic.metadata.refresh.interval.ms": 500, "heartbeat.interval.ms": 500, "session.timeout.ms": 6000}
UNCOMMITTED = {"enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0}


class Reading:
    """What was read since the partitions were assigned, until each of them was read to its end."""

    def __init__(self) -> None:
        self.left: set[int] = set()
        self.records: list[tuple[bytes, bytes, int, int]] = []

    def assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        """Restart at the committed offset."""
        self.left = {one.partition for one in partitions}
        self.records = []

    def whole(self) -> list[tuple[bytes, bytes, int, int]]:
        """All of it, the newest partitions first, if it is complete; else nothing."""
        if self.left:
            return []
        records, self.records = self.records, []
        return sorted(records, key=lambda one: (-one[2], one[3]))


def is_alone(lock: TextIOWrapper) -> bool:
    """Whether no other member reads; who does keeps the lock until it ends."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def receive(partitions: int, servers: str, topic: str, group: str, path: str) -> None:
    """Receive until told to end."""
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer, lines, reading = Consumer({**settings, **OFTEN, **UNCOMMITTED}), Lines(path), Reading()
    with Path(f"{path}.lock").open("w") as lock:
        while not ending and not is_alone(lock):
            signal.sigtimedwait([signal.SIGUSR1], PAUSE_S)
        while not ending and len(consumer.list_topics(topic, timeout=10).topics[topic].partitions) < partitions:
            signal.sigtimedwait([signal.SIGUSR1], PAUSE_S)
        consumer.subscribe([topic], on_assign=reading.assigned)
        while not ending:
            for one in consumer.consume(10_000, timeout=PAUSE_S):
                error = one.error()
                if error is None:
                    reading.records.append(handed(one))
                elif error.code() == KafkaError._PARTITION_EOF:
                    reading.left.discard(one.partition())
            if records := reading.whole():
                lines.write(records)
                ends = {partition: offset + 1 for _, _, partition, offset in records}
                consumer.commit(offsets=[TopicPartition(topic, *end) for end in ends.items()], asynchronous=False)
        consumer.close()


if __name__ == "__main__":
    receive(int(sys.argv[1]), *sys.argv[2:])
