"""Waiting time of a stock group for a child partition: from the parent's last commit to the child's assignment.

Two librdkafka members read a topic that grows by one partition at a time. While the coordinator withholds the child,
they read and commit everything; the clock starts with the last commit. A member learns of opened gates by a heartbeat,
so the bound is one heartbeat plus the rebalance. For comparison in the same run: this package's consumer, whose long
poll the commit completes, from a flushed cut to the first record behind it.

    python -m benchmarks.opening
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from anabranch import Admin, NewTopic, Producer
from anabranch.clients.group_admin import describe_group
from benchmarks.handoff import hand_offs_ms
from benchmarks.peers import QUIET, running
from benchmarks.report import Figure, median, percentile, summary, table, working

HEARTBEAT_MS: Final = 1000
REBALANCE_MS: Final = 100
"""The time allowed for the rebalance."""
RESIZES: Final = 12
KEYS: Final = 64
TIMEOUT_S: Final = 60.0
CLASSIC: Final = {"heartbeat.interval.ms": HEARTBEAT_MS, "topic.metadata.refresh.interval.ms": 200}
PROTOCOLS: Final[dict[str, dict[str, Any]]] = {
    "classic, range": {**CLASSIC, "partition.assignment.strategy": "range"},
    "classic, cooperative-sticky": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "KIP-848": {"group.protocol": "consumer"},
}
BROKERS: Final = (
    "--kafka=4.1",
    f"--config=group.consumer.heartbeat.interval.ms={HEARTBEAT_MS}",
    f"--config=group.consumer.min.heartbeat.interval.ms={HEARTBEAT_MS}",
    "--config=group.initial.rebalance.delay.ms=0",
)


class Members:
    """A group of two members, polled alternately in this thread."""

    def __init__(self, bootstrap: str, topic: str, settings: dict[str, Any]) -> None:
        self.topic = topic
        common = {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
        manual = {"enable.auto.commit": False, "fetch.wait.max.ms": 20}
        self._members = [Consumer({**common, **manual, **QUIET, **settings}) for _ in range(2)]
        for one in self._members:
            one.subscribe([topic])

    def poll(self) -> None:
        """Poll each member once."""
        for one in self._members:
            one.consume(1000, timeout=0.002)

    def assigned(self) -> set[int]:
        """The assigned partitions."""
        return {place.partition for one in self._members for place in one.assignment()}

    def until_read(self, ends: dict[int, int]) -> None:
        """Poll until all assigned partitions are read."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            places = [place for one in self._members for place in one.position(one.assignment())]
            read = {place.partition: place.offset for place in places}
            if all(read.get(index, 0) >= end for index, end in ends.items()):
                return
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"read to {read} of {ends}")
            self.poll()

    def opened_ms(self, ends: dict[int, int], child: int) -> float:
        """Commit everything, and wait for the child: milliseconds from the last commit to its assignment."""
        while self.assigned() != set(ends):  # a rebalance may be in progress: the child is new to the group
            self.poll()
        started_s = 0.0
        for one in self._members:
            places = [TopicPartition(self.topic, place.partition, ends[place.partition]) for place in one.assignment()]
            if places:
                started_s = time.perf_counter()
                one.commit(offsets=places, asynchronous=False)
        while child not in self.assigned():
            if time.perf_counter() - started_s > TIMEOUT_S:
                raise TimeoutError(f"partition {child} was not assigned within {TIMEOUT_S:g} s")
            self.poll()
        return 1000 * (time.perf_counter() - started_s)

    def close(self) -> None:
        """Leave the group."""
        for one in self._members:
            one.close()


async def grow(bootstrap: str, topic: str, count: int) -> dict[int, int]:
    """Store records of all keys, and add a partition. Returns the earlier end offsets by partition."""
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        for number in range(KEYS):
            await producer.send(topic, b"v", b"key-%d" % number)
        await producer.flush()
        ends = {index: await producer.send_and_wait(topic, b"end", partition=index) for index in range(count)}
        await admin.create_partitions(topic, count + 1)
        return {index: stored.offset + 1 for index, stored in ends.items()}


async def withheld(bootstrap: str, group: str) -> set[int]:
    """The partitions that the group waits for."""
    async with Admin(bootstrap) as admin:
        return {one.partition for one in (await describe_group(admin.network, group)).withheld}


async def create(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=3)])
        await admin.wait_for_topic(topic, replicas=3)


def openings_ms(bootstrap: str, name: str, resizes: int) -> list[float]:
    topic = "".join(letter if letter.isalnum() else "-" for letter in name)
    asyncio.run(create(bootstrap, topic))
    members, found = Members(bootstrap, topic, PROTOCOLS[name]), []
    try:
        for count in range(1, resizes + 1):
            while members.assigned() != set(range(count)):
                members.poll()
            ends = asyncio.run(grow(bootstrap, topic, count))
            members.until_read(ends)
            deadline_s = time.monotonic() + TIMEOUT_S
            while asyncio.run(withheld(bootstrap, topic)) != {count}:
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"{topic}: the coordinator withholds nothing")
                members.poll()
            found.append(members.opened_ms(ends, count))
    finally:
        members.close()
    return found


def measure(resizes: int = RESIZES) -> list[Figure]:
    rows: list[Sequence[str]] = []
    figures = []
    with working("opening gates"), running("anabranch", *BROKERS) as peer:
        own_ms, _, _ = asyncio.run(hand_offs_ms(peer.bootstrap, "range"))
        for name in PROTOCOLS:
            taken_ms = openings_ms(peer.bootstrap, name, resizes)
            rows.append((name, *(f"{percentile(taken_ms, percent):.0f}" for percent in (50, 90, 100))))
            figures.append(
                Figure(
                    f"from the last commit to the child's assignment, {name}, most",
                    f"< {HEARTBEAT_MS + REBALANCE_MS} ms",
                    f"{max(taken_ms):.0f} ms (median {median(taken_ms):.0f})",
                    f"our own consumer, to its first record: {median(own_ms):.0f} ms",
                    max(taken_ms) < HEARTBEAT_MS + REBALANCE_MS,
                )
            )
    rows.append(("our own consumer", *(f"{percentile(own_ms, percent):.0f}" for percent in (50, 90, 100))))
    table(f"openings, ms, with heartbeats every {HEARTBEAT_MS} ms", "", "p50", "p90", "most", rows=rows)
    return figures


def main() -> int:
    summary(measure())
    return 0


if __name__ == "__main__":
    sys.exit(main())
