"""confluent-kafka as a group member that logs each delivered record, for `anabranch.chaos run --member`.

    python -m anabranch.chaos run --duration 60 --member "librdkafka=python examples/members/librdkafka.py classic"

The group protocol is `classic`, `cooperative` or `consumer`; the other words are added by the run. The sequence of a
record is what its value says behind the slash.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message
from lines import Lines

KINDS: Final[dict[str, dict[str, Any]]] = {
    "classic": {"partition.assignment.strategy": "range", "session.timeout.ms": 6000},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 6000},
    "consumer": {"group.protocol": "consumer"},
}

MOST_BETWEEN_POLLS_MS: Final = 60_000
"""How long the coordinator waits for a member to give partitions up, by default 5 min. With `consumer`, a member may
never be told to: librdkafka does not ask again after a heartbeat without a response."""
UNANSWERED: Final = "Failed to fetch committed offset"
"""What librdkafka says first when it was not told where to begin in what it is assigned."""


def handed(record: Message) -> tuple[bytes, bytes, int, int]:
    """What is written down of a record."""
    return record.key() or b"", record.value() or b"", record.partition(), record.offset()


def take_again(consumer: Consumer, kind: str) -> None:
    """Ask anew where to begin: librdkafka does not, once a coordinator has refused it (its issue 5586)."""
    mine = consumer.assignment()
    if kind == "classic":
        consumer.unassign()
        consumer.assign(mine)
    else:
        consumer.incremental_unassign(mine)
        consumer.incremental_assign(mine)


def receive(kind: str, servers: str, topic: str, group: str, path: str) -> None:
    """Receive until told to end."""
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    common = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    named = {"client.id": f"{group}-{os.getpid()}", "max.poll.interval.ms": MOST_BETWEEN_POLLS_MS}
    often = {"topic.metadata.refresh.interval.ms": 1000, "reconnect.backoff.max.ms": 1000, "log_level": 0}
    consumer = Consumer({**common, **named, **often, **KINDS[kind], "enable.auto.offset.store": False})
    consumer.subscribe([topic])
    lines = Lines(path)
    while not ending:
        for record in consumer.consume(100, timeout=0.2):
            error = record.error()
            if error is None:
                lines.write([handed(record)])
                with contextlib.suppress(KafkaException):  # taken away meanwhile: whoever has it reads this again
                    consumer.store_offsets(record)  # what is committed from now on was written down
            else:
                print(error, file=sys.stderr, flush=True)
                if error.str().startswith(UNANSWERED):
                    take_again(consumer, kind)
    consumer.close()


if __name__ == "__main__":
    receive(*sys.argv[1:])
