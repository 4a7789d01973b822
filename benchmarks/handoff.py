"""What consumers notice of resizes: hand-offs, catching up through a lineage, and the feature's cost when unused.

Hand-off: two members of a group read a topic that is split and merged again under load; from the moment at which the
owner of a partition has flushed at a cut (before it commits that boundary) until the first record of the partition that
waited for it is handed out. The peer is one commit of an offset in the same run: nothing that rests on committed
offsets can be faster. By the text of KIP-253 a hand-off takes two to three heartbeats, 3 to 7.5 s.

Catching up: one member reads a topic that was split 1 to 6 times before, from its beginning. The peer is the same
member on the same topic without gates, which reads everything as it comes.

Unused: records a second through a topic that keeps order and was never resized; the peer is one that does not.

    python -m benchmarks.handoff
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection
from typing import Final

from benchmarks.peers import running
from benchmarks.report import Figure, median, percentile, summary, table, times, working
from clients import Admin, Consumer, NewTopic, PartitionKeyRebalanceListener, Producer, TopicPartition

RESIZES: Final = (4, 2, 4, 3, 6, 2, 5, 2)
KEYS: Final = 64
PAUSE_S: Final = 0.01
BETWEEN_S: Final = 1.0
DEPTHS: Final = (1, 2, 3, 4, 5, 6)
CAUGHT_UP: Final = 40_000
"""Records per generation when catching up."""
UNUSED: Final = 60_000
UNUSED_ROUNDS: Final = 7
HAND_OFF_AIM_MS: Final = 100.0
CATCH_UP_AIM: Final = 1.2
UNUSED_AIM: Final = 0.02


class Flushes(PartitionKeyRebalanceListener):
    """Notes when keys left a partition, and when a partition that waited got its first record."""

    def __init__(self, handed_off_ms: list[float], flushed_s: dict[TopicPartition, float]) -> None:
        self._handed_off_ms, self._flushed_s = handed_off_ms, flushed_s
        self.waiting: set[TopicPartition] = set()

    def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """What comes next in these partitions others wait for."""
        now_s = time.perf_counter()
        self._flushed_s.update(dict.fromkeys(partitions, now_s))

    def on_partition_key_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Their first record is about to be handed out."""
        now_s = time.perf_counter()
        if self._flushed_s:
            latest_s = max(self._flushed_s.values())
            if now_s - latest_s < BETWEEN_S:
                self._handed_off_ms.extend([1000 * (now_s - latest_s)] * len(partitions))


async def read(consumer: Consumer) -> None:
    """Until cancelled."""
    while True:
        await consumer.getmany(timeout_ms=200)


async def hand_offs_ms(bootstrap: str) -> tuple[list[float], list[float]]:
    """Every hand-off of a resized topic, and some commits beside them, ms."""
    handed_off_ms: list[float] = []
    flushed_s: dict[TopicPartition, float] = {}
    topic, group = "handed-off", "readers"
    async with Admin(bootstrap) as admin, Producer(bootstrap, linger_ms=1) as producer:
        await admin.create_topics([NewTopic(name=topic, partitions=2, replication_factor=3)])
        await admin.wait_for_topic(topic, replicas=3)
        members = [
            Consumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                listener=Flushes(handed_off_ms, flushed_s),
            )
            for _ in range(2)
        ]
        async with members[0], members[1]:
            tasks = [asyncio.create_task(read(one)) for one in members]
            tasks.append(asyncio.create_task(send_steadily(producer, topic)))
            await asyncio.sleep(BETWEEN_S)
            for count in RESIZES:
                await admin.create_partitions(topic, count, allow_shrink=True)
                await asyncio.sleep(BETWEEN_S)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            commits_ms = [await commit_ms(producer, members[0], topic) for _ in range(20)]
    return handed_off_ms, commits_ms


async def commit_ms(producer: Producer, member: Consumer, topic: str) -> float:
    """One commit of one new offset."""
    partition = min(member.assignment())
    stored = await producer.send_and_wait(topic, b"v", partition=partition.partition)
    begun_s = time.perf_counter()
    await member.commit({partition: stored.offset})
    return 1000 * (time.perf_counter() - begun_s)


async def send_steadily(producer: Producer, topic: str) -> None:
    """A record of every key, again and again."""
    while True:
        for number in range(KEYS):
            await producer.send(topic, b"v", b"key-%d" % number)
        await asyncio.sleep(PAUSE_S)


async def catch_up_s(bootstrap: str, depth: int) -> tuple[float, float]:
    """Reading a topic that was split `depth` times from its beginning: with gates, without."""
    topic = f"deep-{depth}"
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await admin.create_topics([NewTopic(name=topic, partitions=1, replication_factor=1)])
        await admin.wait_for_topic(topic)
        for generation in range(depth + 1):
            if generation:
                await admin.create_partitions(topic, 2**generation)
            for number in range(CAUGHT_UP):
                await producer.send(topic, b"v" * 100, b"key-%d" % (number % 1000))
            await producer.flush()
        total = CAUGHT_UP * (depth + 1)
        gated = [await read_all_s(bootstrap, topic, total, ordered=True) for _ in range(3)]
        open_s = [await read_all_s(bootstrap, topic, total, ordered=False) for _ in range(3)]
        await admin.delete_topics([topic])
    return min(gated), min(open_s)


async def read_all_s(bootstrap: str, topic: str, total: int, *, ordered: bool) -> float:
    """From the first record of a topic to its last."""
    group = f"{topic}-{ordered}-{time.perf_counter_ns()}"
    settings = {"group_id": group, "auto_offset_reset": "earliest", "ordered_delivery": ordered}
    async with Consumer(topic, bootstrap_servers=bootstrap, max_poll_records=5000, **settings) as consumer:  # type: ignore[arg-type]
        seen, begun_s = 0, 0.0
        while seen < total:
            batch = await consumer.getmany(timeout_ms=1000)
            begun_s = begun_s or time.perf_counter()
            seen += sum(map(len, batch.values()))
        return time.perf_counter() - begun_s


async def unused_per_s(bootstrap: str) -> tuple[float, float]:
    """Records a second through a topic that keeps order, and one that does not; rounds in turn, medians."""
    rates: dict[str, list[float]] = {"true": [], "false": []}
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        for ordered in rates:
            configs = {"enable.ordered.delivery": ordered}
            await admin.create_topics(
                [NewTopic(name=f"unused-{ordered}", partitions=4, replication_factor=1, configs=configs)]
            )
            await admin.wait_for_topic(f"unused-{ordered}")
        for turn in range(UNUSED_ROUNDS + 1):
            for ordered, found in rates.items():
                begun_s = time.perf_counter()
                for number in range(UNUSED):
                    await producer.send(f"unused-{ordered}", b"v" * 100, b"key-%d" % (number % 1000))
                await producer.flush()
                if turn:  # the first warms up
                    found.append(UNUSED / (time.perf_counter() - begun_s))
        for ordered in rates:
            await admin.delete_topics([f"unused-{ordered}"])
    return median(rates["true"]), median(rates["false"])


def measure() -> list[Figure]:
    """All three, each against its peer."""
    with working("handing off") as status, running("anabranch") as peer:
        handed_off_ms, commits_ms = asyncio.run(hand_offs_ms(peer.bootstrap))
        status.update("what it costs when it is not used")
        ordered, plain = asyncio.run(unused_per_s(peer.bootstrap))
        depths = {}
        for depth in DEPTHS:
            status.update(f"catching up through {depth} splits")
            depths[depth] = asyncio.run(catch_up_s(peer.bootstrap, depth))
    spread = [percentile(handed_off_ms, percent) for percent in (50, 90, 99)]
    commit_ms = median(commits_ms)
    table(
        f"hand-off between members, ms: {len(handed_off_ms)} over {len(RESIZES)} resizes",
        *("", "p50", "p90", "p99"),
        rows=[
            ("flushed at the cut -> first record behind it", *(f"{one:.1f}" for one in spread)),
            ("one commit", *(f"{percentile(commits_ms, percent):.1f}" for percent in (50, 90, 99))),
        ],
    )
    table(
        "reading from the beginning through a lineage, s",
        *("splits", "gated", "ungated", "ratio"),
        rows=[(str(depth), f"{own:.2f}", f"{other:.2f}", times(own, other)) for depth, (own, other) in depths.items()],
    )
    worst = max(own / other for own, other in depths.values())
    cost = 1 - ordered / plain
    return [
        Figure(
            "hand-off from a flushed cut to the first record behind it, median",
            f"< {HAND_OFF_AIM_MS:.0f} ms",
            f"{spread[0]:.1f} ms",
            f"one commit {commit_ms:.1f} ms; KIP-253 by its text 3,000 to 7,500 ms",
            spread[0] < HAND_OFF_AIM_MS,
        ),
        Figure(
            "catching up through up to 6 splits, against no gates",
            f"< {CATCH_UP_AIM}x",
            f"{worst:.2f}x",
            "the same topic without gates",
            worst < CATCH_UP_AIM,
        ),
        Figure(
            "cost of keeping order while nothing is resized",
            f"< {UNUSED_AIM:.0%}",
            f"{cost:.1%}",
            f"{plain:,.0f}/s without, {ordered:,.0f}/s with",
            cost < UNUSED_AIM,
        ),
    ]


def main() -> int:
    """Print the tables and the aims."""
    summary(measure())
    return 0


if __name__ == "__main__":
    sys.exit(main())
