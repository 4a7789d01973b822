"""Thousands of topics, and topics of thousands of partitions: the cost of each, and the delay of other requests.

A fresh cluster of three brokers runs in its own process for each size. Topics of one partition are created one request
at a time, then as many in requests of a hundred, and all are deleted by the hundred; the figure is the cluster's
processor time per topic, which stays constant if the work is linear. Then a topic of four partitions grows, while
another client creates small topics one at a time: the longest of these requests shows how long a large resize delays
others. A hundred records follow.

    python -m benchmarks.scale [--topics 1000 2000 5000] [--partitions 1000 10000] [--replicas 1]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from anabranch import Admin, NewTopic, Producer
from benchmarks.peers import Peer, running
from benchmarks.report import Figure, curve, summary, table, times, working

TOPICS: Final = (500, 1000, 2000)
PARTITIONS: Final = (1000, 4000)
AT_ONCE: Final = 100
FIRST_PARTITIONS: Final = 4
RECORDS: Final = 100
LONGEST_WAIT_S_AIM: Final = 2.0
GROWTH_MAX: Final = 1.5
"""The maximum cost of one of many relative to one of few that counts as linear."""


@dataclass(frozen=True, slots=True)
class Price:
    """Processor time per topic in ms, at one number of topics."""

    one_by_one: float
    in_hundreds: float
    deleted: float


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of one topic, and the delay of other requests."""

    took_s: float
    processor_s: float
    others: int
    longest_wait_s: float
    records_processor_s: float


async def spent(peer: Peer, work: Callable[[], Awaitable[object]]) -> float:
    """Processor seconds of the cluster during some work."""
    before, _ = peer.processor_s
    await work()
    return peer.processor_s[0] - before


async def prices(peer: Peer, count: int, replicas: int) -> Price:
    """Create twice as many topics, and delete them."""
    names = {kind: [f"{kind}-{number}" for number in range(count)] for kind in ("single", "batch")}

    async with Admin(peer.bootstrap, request_timeout_ms=600_000) as admin:

        async def create(some: Sequence[str], at_once: int) -> None:
            for start in range(0, len(some), at_once):
                topics = [
                    NewTopic(name=name, partitions=1, replication_factor=replicas) for name in some[start:][:at_once]
                ]
                await admin.create_topics(topics)

        async def delete(some: Sequence[str]) -> None:
            for start in range(0, len(some), AT_ONCE):
                await admin.delete_topics(list(some[start : start + AT_ONCE]))

        await create(["warm"], 1)
        single = await spent(peer, lambda: create(names["single"], 1))
        batch = await spent(peer, lambda: create(names["batch"], AT_ONCE))
        deleted = await spent(peer, lambda: delete([*names["single"], *names["batch"]]))
    return Price(single * 1000 / count, batch * 1000 / count, deleted * 1000 / (2 * count))


async def growth(peer: Peer, count: int, replicas: int) -> Growth:
    """Grow a topic while another client creates small ones."""
    async with (
        Admin(peer.bootstrap, request_timeout_ms=600_000) as admin,
        Admin(peer.bootstrap, request_timeout_ms=600_000) as other,
        Producer(peer.bootstrap) as producer,
    ):
        await admin.create_topics([NewTopic(name="large", partitions=FIRST_PARTITIONS, replication_factor=replicas)])
        started_s, (ran_s, _) = time.perf_counter(), peer.processor_s
        growing = asyncio.ensure_future(admin.create_partitions("large", count))
        waits_s: list[float] = []
        while not growing.done():
            sent_s = time.perf_counter()
            await other.create_topics(
                [NewTopic(name=f"other-{len(waits_s)}", partitions=1, replication_factor=replicas)]
            )
            waits_s.append(time.perf_counter() - sent_s)
        await growing
        took_s, used_s = time.perf_counter() - started_s, peer.processor_s[0] - ran_s

        async def send() -> None:
            await asyncio.gather(*(producer.send_and_wait("large", b"v", b"%d" % key) for key in range(RECORDS)))

        return Growth(took_s, used_s, len(waits_s), max(waits_s), await spent(peer, send))


def measure(topics: Sequence[int] = TOPICS, partitions: Sequence[int] = PARTITIONS, replicas: int = 1) -> list[Figure]:
    found: dict[int, Price] = {}
    grown: dict[int, Growth] = {}
    with working("creating topics") as status:
        for count in topics:
            status.update(f"creating and deleting {2 * count} topics")
            with running("anabranch") as peer:
                found[count] = asyncio.run(prices(peer, count, replicas))
        for count in partitions:
            status.update(f"growing a topic to {count} partitions")
            with running("anabranch") as peer:
                grown[count] = asyncio.run(growth(peer, count, replicas))
    table(
        f"processor time for each topic, ms ({replicas} replicas)",
        *("topics", "created one by one", "created by the hundred", "deleted"),
        rows=[
            (f"{count}", *(f"{one:.2f}" for one in (price.one_by_one, price.in_hundreds, price.deleted)))
            for count, price in found.items()
        ],
        note="where the work is in proportion, each column is one number",
    )
    curve(
        "processor time for each topic created one by one",
        [(f"{count}", price.one_by_one) for count, price in found.items()],
        unit="ms",
    )
    table(
        f"a topic of {FIRST_PARTITIONS} partitions grows, and others create topics ({replicas} replicas)",
        *("partitions", "took, s", "processor, s", "others' topics", "longest wait, s", "100 records, processor s"),
        rows=[
            (
                f"{count}",
                *(f"{one:.2f}" for one in (each.took_s, each.processor_s)),
                f"{each.others}",
                *(f"{one:.2f}" for one in (each.longest_wait_s, each.records_processor_s)),
            )
            for count, each in grown.items()
        ],
    )
    return [*figures_of_topics(found), *figures_of_growth(grown)]


def figures_of_topics(found: dict[int, Price]) -> list[Figure]:
    """The largest number of topics relative to the smallest."""
    figures = []
    if len(found) > 1:
        few, many = min(found), max(found)
        for what, one, other in (
            ("created one by one", found[many].one_by_one, found[few].one_by_one),
            ("created by the hundred", found[many].in_hundreds, found[few].in_hundreds),
            ("deleted", found[many].deleted, found[few].deleted),
        ):
            figures.append(
                Figure(
                    f"processor time for each of {many} topics, {what}",
                    "in proportion",
                    f"{one:.2f} ms",
                    f"each of {few} {other:.2f} ms, {times(one, other)}",
                    one <= GROWTH_MAX * other,
                )
            )
    return figures


def figures_of_growth(grown: dict[int, Growth]) -> list[Figure]:
    """The delay of other requests by each growth."""
    return [
        Figure(
            f"longest wait for a topic beside a growth to {count} partitions",
            f"< {LONGEST_WAIT_S_AIM:.0f} s",
            f"{each.longest_wait_s:.2f} s",
            f"the growth itself {each.took_s:.2f} s",
            each.longest_wait_s < LONGEST_WAIT_S_AIM,
        )
        for count, each in grown.items()
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, nargs="+", default=TOPICS, help="how many topics")
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS, help="sizes of the growing topic")
    parser.add_argument("--replicas", type=int, default=1, help="of every topic (default: 1)")
    options = parser.parse_args(arguments)
    summary(measure(options.topics, options.partitions, options.replicas))
    return 0


if __name__ == "__main__":
    sys.exit(main())
