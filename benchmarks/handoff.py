"""Resizes seen by consumers: hand-off times, catching up through a lineage, and the cost when unused.

Hand-off: two group members read a topic that is split and merged under load, with each assignor, eager and cooperative.
The time runs from the owner's flush at a cut (before it commits that boundary), or from the first record behind it,
until the first record of the waiting partition is delivered, including the rebalance. The peer is one offset commit in
the same run: nothing that depends on committed offsets can be faster. By the text of KIP-253 a hand-off takes two to
three heartbeats, 3 to 7.5 s.

Catching up: one member reads a topic that was split 1 to 6 times before, from its beginning. The peer is the same
member on the same topic without gates.

Unused: records per second through an ordered topic without resizes; the peer is an unordered topic.

    python -m benchmarks.handoff
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from rich.status import Status

from anabranch import Admin, Consumer, ConsumerRecord, NewTopic, PartitionKeyRebalanceListener, Producer, TopicPartition
from anabranch.clients.producer.producer_record import RecordMetadata
from anabranch.protocol.lineage import KeyEpoch, Lineage
from benchmarks.peers import running
from benchmarks.report import Figure, curve, distribution, median, percentile, summary, table, times, working

RESIZES: Final = (4, 2, 4, 3, 6, 2, 5, 2)
STRATEGIES: Final = ("lineage", "range", "cooperative-sticky")
"""Of these only `range` assigns children to other members than their parents."""
KEYS: Final = 64
PAUSE_S: Final = 0.01
BETWEEN_S: Final = 1.0
DEPTHS: Final = (1, 2, 3, 4, 5, 6)
CAUGHT_UP: Final = 40_000
"""Records per generation when catching up."""
CATCH_UP_ROUNDS: Final = 4
UNUSED: Final = 60_000
UNUSED_ROUNDS: Final = 7
HAND_OFF_AIM_MS: Final = 100.0
CATCH_UP_AIM: Final = 1.2
UNUSED_AIM: Final = 0.02


class HandOffs:
    """When each partition's keys were released, and when and to whom each first record of a key epoch came."""

    def __init__(self) -> None:
        self.flushed: list[tuple[float, int, int]] = []
        """(time, partition, member)."""
        self.first: dict[KeyEpoch, tuple[float, int]] = {}
        self.stored_s: dict[tuple[int, int], float] = {}
        """When the producer received a record's acknowledgement, by partition and offset."""
        self._first_offsets: dict[KeyEpoch, int] = {}

    def handed_out(self, member: int, records: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        """Record a delivery to a member."""
        now_s = time.perf_counter()
        for partition, rows in records.items():
            for record in rows:
                key_epoch = KeyEpoch(partition.partition, record.generation)
                if key_epoch not in self.first:
                    self.first[key_epoch] = now_s, member
                    self._first_offsets[key_epoch] = record.offset

    def stored(self, receipt: asyncio.Future[RecordMetadata]) -> None:
        """Record an acknowledgement."""
        if not receipt.cancelled() and receipt.exception() is None:
            place = receipt.result()
            self.stored_s[place.partition, place.offset] = time.perf_counter()

    def taken_ms(self, lineage: Lineage, *, between: bool) -> list[float]:
        """From the flush before the last commit of the old key epoch to the first record of the new key epoch.

        Or from the moment at which such a record was stored. `between`: only key epochs whose keys another member took
        over.
        """
        found: list[float] = []
        for key_epoch, (first_s, member) in self.first.items():
            sources = {one.partition for one in lineage.predecessors(key_epoch)}
            flushes = [row for row in self.flushed if row[1] in sources and row[0] <= first_s]
            if {row[1] for row in flushes} == sources != set():
                flushed_s, _, giver = max(flushes)
                stored_s = self.stored_s.get((key_epoch.partition, self._first_offsets[key_epoch]), first_s)
                if not between or giver != member:
                    found.append(1000 * max(first_s - max(flushed_s, stored_s), 0.0))
        return found


class Flushes(PartitionKeyRebalanceListener):
    """The rebalance listener of one member."""

    def __init__(self, hand_offs: HandOffs, member: int) -> None:
        self._hand_offs, self._member = hand_offs, member

    def on_partition_key_maybe_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Record the flush."""
        now_s = time.perf_counter()
        self._hand_offs.flushed += [(now_s, one.partition, self._member) for one in partitions]


async def read(consumer: Consumer, hand_offs: HandOffs, member: int) -> None:
    """Read until cancelled."""
    while True:
        hand_offs.handed_out(member, await consumer.getmany(timeout_ms=200))


async def hand_offs_ms(bootstrap: str, strategy: str) -> tuple[list[float], list[float], list[float]]:
    """All hand-off times of a resized topic, those between members, and some commit times, in ms."""
    hand_offs = HandOffs()
    topic, group = f"handed-off-{strategy}", f"readers-{strategy}"
    async with Admin(bootstrap) as admin, Producer(bootstrap, linger_ms=1) as producer:
        await admin.create_topics([NewTopic(name=topic, partitions=2, replication_factor=3)])
        await admin.wait_for_topic(topic, replicas=3)
        members = [
            Consumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                partition_assignment_strategy=strategy,
                listener=Flushes(hand_offs, number),
            )
            for number in range(2)
        ]
        async with members[0], members[1]:
            tasks = [asyncio.create_task(read(one, hand_offs, number)) for number, one in enumerate(members)]
            tasks.append(asyncio.create_task(send_steadily(producer, topic, hand_offs)))
            await asyncio.sleep(BETWEEN_S)
            for count in RESIZES:
                await admin.create_partitions(topic, count, allow_shrink=True)
                await asyncio.sleep(BETWEEN_S)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            commits_ms = [await commit_ms(producer, members, topic) for _ in range(20)]
        lineage = (await admin.describe_topic(topic)).lineage
        assert lineage is not None, "a topic that keeps order has a lineage"
        await admin.delete_topics([topic])
    return hand_offs.taken_ms(lineage, between=False), hand_offs.taken_ms(lineage, between=True), commits_ms


async def commit_ms(producer: Producer, members: Sequence[Consumer], topic: str) -> float:
    """The time of one commit of a new offset, by the owner of a partition that receives records."""
    live = await producer.partitions_for(topic)
    owned = ((one, member) for member in members for one in member.assignment() if one.partition in live)
    partition, member = min(owned, key=lambda pair: pair[0])
    stored = await producer.send_and_wait(topic, b"v", partition=partition.partition)
    started_s = time.perf_counter()
    await member.commit({partition: stored.offset})
    return 1000 * (time.perf_counter() - started_s)


async def send_steadily(producer: Producer, topic: str, hand_offs: HandOffs) -> None:
    """Send a record of every key, again and again."""
    while True:
        for number in range(KEYS):
            receipt = await producer.send(topic, b"v", b"key-%d" % number)
            receipt.add_done_callback(hand_offs.stored)
        await asyncio.sleep(PAUSE_S)


async def catch_up_s(bootstrap: str, depth: int) -> tuple[float, float]:
    """Seconds to read a topic that was split `depth` times from its beginning: with gates, without."""
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
        taken_s: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(CATCH_UP_ROUNDS):  # alternating, so that a disturbance affects both
            for ordered, found in taken_s.items():
                found.append(await read_all_s(bootstrap, topic, total, ordered=ordered))
        await admin.delete_topics([topic])
    return min(taken_s[True]), min(taken_s[False])


async def read_all_s(bootstrap: str, topic: str, total: int, *, ordered: bool) -> float:
    """Seconds from the first record of a topic to its last."""
    group = f"{topic}-{ordered}-{time.perf_counter_ns()}"
    settings = {"group_id": group, "auto_offset_reset": "earliest", "ordered_delivery": ordered}
    async with Consumer(topic, bootstrap_servers=bootstrap, max_poll_records=5000, **settings) as consumer:  # type: ignore[arg-type]
        seen, started_s = 0, 0.0
        while seen < total:
            batch = await consumer.getmany(timeout_ms=1000)
            started_s = started_s or time.perf_counter()
            seen += sum(map(len, batch.values()))
        return time.perf_counter() - started_s


async def unused_per_s(bootstrap: str) -> tuple[float, float]:
    """Records per second through an ordered topic and an unordered one; medians of alternating rounds."""
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
                started_s = time.perf_counter()
                for number in range(UNUSED):
                    await producer.send(f"unused-{ordered}", b"v" * 100, b"key-%d" % (number % 1000))
                await producer.flush()
                if turn:  # the first round warms up
                    found.append(UNUSED / (time.perf_counter() - started_s))
        for ordered in rates:
            await admin.delete_topics([f"unused-{ordered}"])
    return median(rates["true"]), median(rates["false"])


def measure_hand_offs(bootstrap: str) -> list[Figure]:
    rows, figures = [], []
    commits_ms: list[float] = []
    for strategy in STRATEGIES:
        all_ms, between_ms, commits_ms = asyncio.run(hand_offs_ms(bootstrap, strategy))
        for what, taken_ms in (("all", all_ms), ("between members", between_ms)):
            spread = [f"{percentile(taken_ms, percent):.1f}" for percent in (50, 90, 99)] if taken_ms else ["-"] * 3
            rows.append((f"{strategy}, {what}: {len(taken_ms)}", *spread))
        distribution(f"hand-off, {strategy}", all_ms, unit="ms")
        figures.append(
            Figure(
                f"hand-off from a flushed cut to the first record behind it, median, {strategy}",
                f"< {HAND_OFF_AIM_MS:.0f} ms",
                f"{median(all_ms):.1f} ms (p90 {percentile(all_ms, 90):.0f})",
                f"one commit {median(commits_ms):.1f} ms; KIP-253 by its text 3,000 to 7,500 ms",
                median(all_ms) < HAND_OFF_AIM_MS,
            )
        )
    rows.append(("one commit", *(f"{percentile(commits_ms, percent):.1f}" for percent in (50, 90, 99))))
    table(f"hand-offs, ms, over {len(RESIZES)} resizes each", *("", "p50", "p90", "p99"), rows=rows)
    return figures


def measure_catching_up(bootstrap: str, status: Status) -> Figure:
    depths = {}
    for depth in DEPTHS:
        status.update(f"catching up through {depth} splits")
        depths[depth] = asyncio.run(catch_up_s(bootstrap, depth))
    table(
        "reading from the beginning through a lineage, s",
        *("splits", "gated", "ungated", "ratio"),
        rows=[(str(depth), f"{own:.2f}", f"{other:.2f}", times(own, other)) for depth, (own, other) in depths.items()],
    )
    ratios = [(f"{depth} splits", own / other) for depth, (own, other) in depths.items()]
    curve("catching up, against no gates", ratios, unit="times")
    worst = max(ratio for _, ratio in ratios)
    return Figure(
        "catching up through up to 6 splits, against no gates",
        f"< {CATCH_UP_AIM}x",
        f"{worst:.2f}x",
        "the same topic without gates",
        worst < CATCH_UP_AIM,
    )


def measure() -> list[Figure]:
    with working("handing off") as status, running("anabranch") as peer:
        figures = measure_hand_offs(peer.bootstrap)
        status.update("what it costs when it is not used")
        ordered, plain = asyncio.run(unused_per_s(peer.bootstrap))
        figures.append(measure_catching_up(peer.bootstrap, status))
    cost = 1 - ordered / plain
    figures.append(
        Figure(
            "cost of keeping order while nothing is resized",
            f"< {UNUSED_AIM:.0%}",
            f"{cost:.1%}",
            f"{plain:,.0f}/s without, {ordered:,.0f}/s with",
            cost < UNUSED_AIM,
        )
    )
    return figures


def main() -> int:
    summary(measure())
    return 0


if __name__ == "__main__":
    sys.exit(main())
