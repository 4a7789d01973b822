"""confluent-kafka, with every delivery written down, so that `anabranch audit --deliveries` can judge their order.

    anabranch topics create orders --partitions 4
    python examples/written_down.py send 127.0.0.1:9092 orders stored.jsonl 10000
    python examples/written_down.py receive 127.0.0.1:9092 orders handed.jsonl 10000
    anabranch audit --deliveries handed.jsonl --sent stored.jsonl

Any client in any language can do the same: the number of a record among those of its key travels in a header, and who
is handed the record appends a line before it commits. Several receivers may append to one file.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer

SEQUENCE: Final = "sequence"
KEYS: Final = 100


def line_of(record: Message, sequence: int, **more: Any) -> bytes:
    """What is written down of a record."""
    place = {"partition": record.partition(), "offset": record.offset()}
    return json.dumps({"key": record.key().decode(), "sequence": sequence, **place, **more}).encode() + b"\n"


def send(servers: str, topic: str, file: Path, count: int) -> None:
    """Send records of some keys, each with its number, and write down what is stored."""
    sequences: Counter[str] = Counter()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    with file.open("ab") as lines:

        def on_delivery(sequence: int, error: Any, record: Message) -> None:
            if error is not None:
                raise KafkaException(error)
            lines.write(line_of(record, sequence))

        for number in range(count):
            key = f"key-{number % KEYS}"
            sequence = sequences[key]
            sequences[key] += 1
            headers = {SEQUENCE: str(sequence)}
            producer.produce(topic, f"value {number}", key, headers=headers, on_delivery=partial(on_delivery, sequence))
            producer.poll(0)
        producer.flush()


def receive(servers: str, topic: str, file: Path, count: int) -> None:
    """Receive as one of a group until the file has so many lines, and write down what was handed out."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
    }
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([topic])
    lines = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while len(file.read_bytes().splitlines()) < count:
        records = consumer.consume(100, timeout=0.2)
        for record in records:
            if (error := record.error()) is not None:
                raise KafkaException(error)
            sequence = int(dict(record.headers())[SEQUENCE])
            os.write(lines, line_of(record, sequence, member=str(os.getpid())))
        if records:
            consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    _, what, where, name, path, records_wanted = sys.argv
    {"send": send, "receive": receive}[what](where, name, Path(path), int(records_wanted))
