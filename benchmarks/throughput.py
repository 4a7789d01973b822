"""Records per second produced and consumed: 1 KiB each, librdkafka as the client, its mock cluster as the peer.

Produce: one producer with librdkafka's defaults fills a topic of four partitions; the time runs from the first call to
the last acknowledgement. On anabranch acks=1 waits for the leader, acks=all for three replicas; the mock cluster has no
replicas and treats both alike. Consume: one consumer reads the topic from its beginning several times. The mock cluster
limits the volume: 5 MiB per partition.

    python -m benchmarks.throughput [--rounds 5]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.peers import COMMANDS, QUIET, Peer, running
from benchmarks.report import Figure, median, run_benchmark, table, times, working

PARTITIONS: Final = 4  # the mock cluster's default; also small enough to create explicitly here
RECORD: Final = bytes(range(256)) * 4
RECORDS: Final = 16000
ROUNDS: Final = 5
WAIT_S: Final = 30.0
NONE: Final[Mapping[str, Any]] = {}


def create_topic(bootstrap: str, topic: str, replicas: int = 3) -> None:
    """Create the topic and wait until it has leaders."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, replicas)]).values():
        created.result(WAIT_S)
    deadline_s = time.perf_counter() + WAIT_S
    while time.perf_counter() < deadline_s:
        partitions = admin.list_topics(topic, timeout=5).topics[topic].partitions
        if len(partitions) == PARTITIONS and all(one.leader > 0 for one in partitions.values()):
            return
    raise TimeoutError(f"{topic} got no leaders")


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete the topic, to free the memory of its three replicas."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for deleted in admin.delete_topics([topic]).values():
        deleted.result(WAIT_S)


def produced_per_s(
    bootstrap: str, topic: str, acks: str, rounds: int, settings: Mapping[str, Any] = NONE
) -> list[float]:
    """Records per second of each round, after a warm-up round; `settings` are the client's."""
    failures: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": acks,
            "queue.buffering.max.messages": 4 * RECORDS,
            "queue.buffering.max.kbytes": 1 << 20,
            **QUIET,
            **settings,
        }
    )
    rates = []
    for _ in range(rounds + 1):
        start_s = time.perf_counter()
        for number in range(RECORDS):
            producer.produce(topic, RECORD, partition=number % PARTITIONS, on_delivery=delivered)
        left = producer.flush(WAIT_S)
        rates.append(RECORDS / (time.perf_counter() - start_s))
        if left or failures:
            raise RuntimeError(f"{left} records not delivered, {len(failures)} refused: {failures[:1]}")
    return rates[1:]


def consumed_per_s(bootstrap: str, topic: str, rounds: int, settings: Mapping[str, Any] = NONE) -> list[float]:
    """Records per second of each round, from its first record to its last."""
    group = {"group.id": "benchmark", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **group, **QUIET, **settings})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=WAIT_S) for p in range(PARTITIONS)]
    # Both clusters hold the producer's last rounds; the mock cluster has dropped the older ones.
    share = min(RECORDS // PARTITIONS, *(high - low for low, high in ends))
    rates = []
    for _ in range(rounds + 1):
        consumer.assign([TopicPartition(topic, p, high - share) for p, (_, high) in enumerate(ends)])
        left = share * PARTITIONS
        first_s = 0.0
        counted = 0
        while left > 0:
            records = consumer.consume(min(left, 1000), timeout=WAIT_S)
            if not records or any(one.error() for one in records):
                raise RuntimeError(f"{left} records did not come: {[one.error() for one in records][:1]}")
            left -= len(records)
            if first_s:
                counted += len(records)
            else:
                first_s = time.perf_counter()
        rates.append(counted / (time.perf_counter() - first_s))
        consumer.unassign()
    consumer.close()
    return rates[1:]


def measure_peer(name: str, peer: Peer, rounds: int, status: Any) -> dict[str, float]:
    """All rates of one cluster."""
    rates = {}
    for acks in ("1", "all"):
        topic = f"benchmark-{acks}"
        if name == "anabranch":  # the mock cluster only creates topics at first use, with four partitions
            create_topic(peer.bootstrap, topic)
        status.update(f"throughput: {name}, produce acks={acks}")
        rates[f"produce, acks={acks}"] = median(produced_per_s(peer.bootstrap, topic, acks, rounds))
        if acks == "1" and name == "anabranch":
            delete_topic(peer.bootstrap, topic)
    status.update(f"throughput: {name}, consume")
    rates["consume"] = median(consumed_per_s(peer.bootstrap, topic, rounds))
    return rates


def measure(rounds: int = ROUNDS) -> list[Figure]:
    found: dict[str, dict[str, float]] = {}
    with working("throughput") as status:
        for name in COMMANDS:
            with running(name) as peer:
                found[name] = measure_peer(name, peer, rounds, status)
    own, mock = found["anabranch"], found["mock"]
    table(
        f"throughput: records of {len(RECORD)} bytes, {PARTITIONS} partitions, median of {rounds} rounds of {RECORDS}",
        *("", "records/s", "MB/s", "mock records/s", "MB/s", "ratio"),
        rows=[
            (
                what,
                f"{own[what]:,.0f}",
                _mb(own[what]),
                f"{mock[what]:,.0f}",
                _mb(mock[what]),
                times(own[what], mock[what]),
            )
            for what in own
        ],
        note="anabranch keeps three replicas of everything; the mock cluster, compiled C, keeps none",
    )
    return [
        Figure(
            f"{what}, 1 KiB records",
            "shown",
            f"{own[what]:,.0f}/s, {_mb(own[what])} MB/s",
            f"mock cluster {mock[what]:,.0f}/s ({times(own[what], mock[what])})",
        )
        for what in own
    ]


def _mb(rate: float) -> str:
    return f"{rate * len(RECORD) / 1e6:.0f}"


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(__doc__, measure, arguments, rounds=(ROUNDS, "measured rounds"))


if __name__ == "__main__":
    sys.exit(main())
