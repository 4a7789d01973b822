"""The effect of a resize on producers, and its cost in ZooKeeper, for topics of 10 to 1,000 partitions.

A cluster runs in its own process. For each of sixteen keys one record at a time is sent and acknowledged; half of the
keys are in partitions that the resize affects. The topic grows by half its size, so one part of it is split and the
rest is unaffected. A key's stall is its slowest acknowledgement from the resize request until shortly after its
publication; the peer is the slowest one in an equally long time before.

The writes are counted in a second cluster, in this process.

    python -m benchmarks.resize [--partitions 10 100 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from anabranch import Admin, NewTopic, Producer
from anabranch.cluster.in_process import Cluster
from anabranch.controller.zk.memory import MemorySession, MemoryZooKeeper
from anabranch.controller.zk.session import Check, Op
from anabranch.protocol import linear_hashing
from anabranch.protocol.hashing import murmur2
from benchmarks.peers import running
from benchmarks.report import Figure, curve, median, percentile, summary, table, times, working

SIZES: Final = (10, 30, 100, 300, 1000)
AIM_MS: Final = {100: 100.0}
KEYS: Final = 8
"""The number of keys of each kind."""
SETTLE_S: Final = 0.3
REPLICAS: Final = 3


class Stalls:
    """Sends records of one key, one at a time, and records each duration."""

    def __init__(self, producer: Producer, topic: str, key: bytes) -> None:
        self._producer, self._topic, self._key = producer, topic, key
        self.taken: list[tuple[float, float]] = []

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            started_s = time.perf_counter()
            await self._producer.send_and_wait(self._topic, b"v", self._key)
            self.taken.append((started_s, time.perf_counter() - started_s))

    def worst_ms(self, since_s: float, until_s: float) -> float:
        """The slowest acknowledgement among the requests in flight during this time."""
        return 1000 * max(
            (took for started_s, took in self.taken if started_s < until_s and started_s + took > since_s), default=0
        )


def keys_of(touched: bool, before: int, after: int, salt: str) -> list[bytes]:
    """Keys in partitions that a resize affects, or does not affect."""
    base = linear_hashing.base_of(before)
    affected = set(linear_hashing.affected_partitions(base, before, after))
    found: list[bytes] = []
    number = 0
    while len(found) < KEYS:
        key = f"{salt}-{number}".encode()
        number += 1
        if (linear_hashing.address(murmur2(key), base, before) in affected) == touched:
            found.append(key)
    return found


async def stalls_ms(bootstrap: str, before: int, after: int) -> tuple[list[float], list[float], list[float], float]:
    """(affected, unaffected, undisturbed): the maximum of each key; and the resize's duration."""
    topic = f"resized-{before}"
    async with Admin(bootstrap, request_timeout_ms=120_000) as admin, Producer(bootstrap, linger_ms=0) as producer:
        await admin.create_topics([NewTopic(name=topic, partitions=before, replication_factor=REPLICAS)])
        await admin.wait_for_topic(topic, replicas=REPLICAS, timeout_ms=120_000)
        touched = [Stalls(producer, topic, key) for key in keys_of(True, before, after, "touched")]
        untouched = [Stalls(producer, topic, key) for key in keys_of(False, before, after, "untouched")]
        tasks = [asyncio.create_task(one.run()) for one in (*touched, *untouched)]
        try:
            await asyncio.sleep(1 + SETTLE_S)
            started_s = time.perf_counter()
            await admin.create_partitions(topic, after)
            ended_s = time.perf_counter()
            await asyncio.sleep(SETTLE_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await admin.delete_topics([topic])
    length_s = min(ended_s - started_s + SETTLE_S, 1.0)
    window = (started_s, ended_s + SETTLE_S)
    return (
        [one.worst_ms(*window) for one in touched],
        [one.worst_ms(*window) for one in untouched],
        [one.worst_ms(started_s - length_s, started_s) for one in (*touched, *untouched)],
        ended_s - started_s,
    )


class CountingZooKeeper(MemoryZooKeeper):
    """A ZooKeeper that counts written znodes."""

    written = 0

    async def connect(self, session_timeout_ms: int = 18000) -> MemorySession:
        """Open a session whose transactions are counted."""
        session = await super().connect(session_timeout_ms)
        carry_out = session.multi

        async def multi(ops: Sequence[Op]) -> Any:
            self.written += sum(not isinstance(op, Check) for op in ops)
            return await carry_out(ops)

        session.multi = multi  # type: ignore[method-assign]
        return session


async def znodes_written(before: int, after: int) -> int:
    cluster = Cluster(1)
    zookeeper = cluster.zookeeper = CountingZooKeeper()
    async with cluster, Admin(cluster.bootstrap_servers, request_timeout_ms=120_000) as admin:
        await admin.create_topics([NewTopic(name="t", partitions=before, replication_factor=1)])
        await admin.wait_for_topic("t", timeout_ms=120_000)
        already = zookeeper.written
        await admin.create_partitions("t", after)
        return zookeeper.written - already


def measure(sizes: Sequence[int] = SIZES) -> list[Figure]:
    rows: list[tuple[str, ...]] = []
    figures: list[Figure] = []
    stalls: list[tuple[str, float]] = []
    writes: list[tuple[str, float]] = []
    with working("resizing under load") as status, running("anabranch") as peer:
        for before in sizes:
            after = before + before // 2
            status.update(f"resizing {before} partitions to {after}")
            touched, untouched, calm, took_s = asyncio.run(stalls_ms(peer.bootstrap, before, after))
            written = asyncio.run(znodes_written(before, after))
            affected = len(linear_hashing.affected_partitions(linear_hashing.base_of(before), before, after))
            worst, typical = percentile(touched, 99), median(touched)
            rows.append(
                (
                    f"{before} -> {after}",
                    *(f"{one:.1f}" for one in (took_s * 1000, typical, worst, max(untouched), max(calm))),
                    f"{written} / {affected}",
                )
            )
            stalls += [(f"{before}, split", worst), ("untouched", max(untouched)), ("undisturbed", max(calm))]
            writes.append((f"{before}", written / affected))
            aim = AIM_MS.get(before)
            figures.append(
                Figure(
                    f"produce stall of a split partition, {before} partitions, p99",
                    f"< {aim:.0f} ms" if aim else "",
                    f"{worst:.0f} ms",
                    f"undisturbed {max(calm):.0f} ms, untouched partitions {max(untouched):.0f} ms",
                    worst < aim if aim else None,
                )
            )
            figures.append(
                Figure(
                    f"znodes written by a resize, {before} partitions",
                    "in proportion",
                    f"{written}",
                    f"{affected} affected partitions, {times(written, affected)}",
                    written <= 2 * affected + 4,
                )
            )
    table(
        "what a producer notices of a resize: the slowest acknowledgement per key, ms",
        *("partitions", "published after", "touched p50", "touched p99", "untouched", "undisturbed", "znodes/affected"),
        rows=rows,
        note="undisturbed: the same keys in as long a time before; a broker that creates replicas shares its core",
    )
    curve(
        "slowest acknowledgement by the number of partitions (p99 of split ones)", stalls, unit="ms", logarithmic=True
    )
    curve("znodes written for each affected partition", writes, unit="znodes")
    return figures


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=SIZES, help="sizes of the topics")
    summary(measure(parser.parse_args(arguments).partitions))
    return 0


if __name__ == "__main__":
    sys.exit(main())
