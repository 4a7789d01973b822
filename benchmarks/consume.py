"""Processor time per record of this package's consumer, compared with aiokafka and its compiled code.

One process reads a topic of four partitions from its beginning, in batches (`getmany`) and record by record (`async
for`), alternately with each consumer, from the same `anabranch up`. The figure is the processor time of the reading
process: wall-clock time depends on other users of the machine. Both return at most 500 records at a time.

    python -m benchmarks.consume [--rounds 7]
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from confluent_kafka import Producer

from anabranch import Consumer
from benchmarks.peers import QUIET, running
from benchmarks.report import Figure, median, run_benchmark, table, times, working
from benchmarks.throughput import PARTITIONS, create_topic

SIZES: Final[dict[str, tuple[int, int, int]]] = {
    "100 B": (100, 100, 200_000),
    "100 to 106 B": (100, 106, 200_000),
    "1 KiB": (1024, 1024, 60_000),
    "1,024 to 1,030 B": (1024, 1030, 60_000),
}
"""Smallest and largest value in bytes, which alternate, and the number of records."""
ROUNDS: Final = 7
WAIT_S: Final = 60.0
AT_ONCE: Final = 500


def fill(bootstrap: str, topic: str, smallest: int, largest: int, records: int) -> None:
    """Store records with a short key each, batched as by a producer with librdkafka's defaults."""
    create_topic(bootstrap, topic, replicas=1)
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": records, **QUIET})
    value = bytes(range(256)) * (largest // 256 + 1)
    sizes = range(smallest, largest + 1)
    for number in range(records):
        of_value = sizes[number % len(sizes)]
        producer.produce(topic, value[:of_value], key=b"%08d" % number, partition=number % PARTITIONS)
    if left := producer.flush(WAIT_S):
        raise RuntimeError(f"{left} records not delivered")


async def read_many(consumer: Any, records: int) -> float:
    """Processor seconds for these records in batches, from the first record on."""
    read, start_s = 0, 0.0
    while read < records:
        taken = await consumer.getmany(timeout_ms=1000, max_records=AT_ONCE)
        start_s = start_s or time.process_time()
        read += sum(len(rows) for rows in taken.values())
    return time.process_time() - start_s


async def read_each(consumer: Any, records: int) -> float:
    """Processor seconds for these records, record by record."""
    read, start_s = 0, 0.0
    async for _ in consumer:
        start_s = start_s or time.process_time()
        read += 1
        if read == records:
            break
    return time.process_time() - start_s


WAYS: Final[dict[str, Callable[[Any, int], Any]]] = {"getmany": read_many, "async for": read_each}
MAKERS: Final[dict[str, Callable[..., Any]]] = {"anabranch": Consumer, "aiokafka": AIOKafkaConsumer}


async def measured(bootstrap: str, topic: str, records: int, rounds: int) -> dict[tuple[str, str], float]:
    """Records per second of processor time, by method and client: medians of alternating rounds."""
    rates: dict[tuple[str, str], list[float]] = {(way, name): [] for way in WAYS for name in MAKERS}
    for number in range(rounds + 1):
        for way, name in rates:
            async with MAKERS[name](topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
                spent_s = await WAYS[way](consumer, records)
            if number:
                rates[way, name].append(records / spent_s)
    return {one: median(found) for one, found in rates.items()}


def measure(rounds: int = ROUNDS) -> list[Figure]:
    rows, figures = [], []
    with running("anabranch") as peer:
        for label, (smallest, largest, records) in SIZES.items():
            with working(f"consume: {label}"):
                topic = f"benchmark-{smallest}-{largest}"
                fill(peer.bootstrap, topic, smallest, largest, records)
                rates = asyncio.run(measured(peer.bootstrap, topic, records, rounds))
            for way in WAYS:
                own, other = rates[way, "anabranch"], rates[way, "aiokafka"]
                rows.append((f"{label}, {way}", f"{own:,.0f}", f"{other:,.0f}", times(own, other)))
                figures.append(
                    Figure(
                        f"records a processor second, {label}, {way}",
                        "aiokafka's",
                        f"{own:,.0f}",
                        f"aiokafka, compiled, {other:,.0f} ({times(own, other)})",
                        own >= other,
                    )
                )
    table(
        f"consume: records for each second of the client's processor time, medians of {rounds} rounds",
        *("", "anabranch", "aiokafka, compiled", "ratio"),
        rows=rows,
    )
    return figures


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(__doc__, measure, arguments, rounds=(ROUNDS, "measured rounds"))


if __name__ == "__main__":
    sys.exit(main())
