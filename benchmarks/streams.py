"""Scaling out a streams application: the downtime of its keys, and the exactness of its results.

Downtime: one instance has the state of a million keys; records of a few live keys arrive steadily, and each becomes an
output record with the broker's timestamp. A second instance starts, with an empty disk. The downtime of a key is the
longest time between two of its outputs, from before the second instance starts until half of the tasks run there. There
are three modes: eager and sticky, which stops everything until the moved half is restored; cooperative and sticky,
which stops only the moved half; cooperative with warm-up, which first restores on the second instance.

Exactness: instances that are started, killed and stopped process a year's flights while the topic is resized; the
aggregate is compared with that of a loop over the same flights.

    python -m benchmarks streams
    python -m benchmarks.streams [--keys 1000000] [--live 48] [--flights 336776] [--only downtime|exactness]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from anabranch import Admin, ConsumerRecord, NewTopic, Producer
from anabranch.demo.flights import load
from anabranch.protocol import linear_hashing
from benchmarks.instances import Instance, Output, send_all
from benchmarks.peers import running
from benchmarks.report import Figure, console, median, summary, table, working
from examples import flights as example

KEYS: Final = 1_000_000
LIVE: Final = 48
PARTITIONS: Final = 8
SOURCE_PARTITIONS: Final = 4
RESIZES: Final = (8, 3)
ROUNDS_PER_S: Final = 20
"""The records per second of each live key: gaps below 50 ms are invisible."""
PAGE: Final = b"/departures/2013/06/15?carrier=UA&origin=EWR&sort=scheduled"
"""The value of a click, kept in its key's state: some eighty bytes per key with the count."""
SETTLE_S: Final = 2.0
WARM_UP_AIM: Final = 10.0
FLIGHTS: Final = "examples/flights.py:topology"
COUNTS: Final = "examples/counts.py:topology"
MODES: Final[Mapping[str, Mapping[str, object]]] = {
    "eager, sticky": {"rebalance_protocol": "eager", "task_assignor": "sticky"},
    "cooperative, sticky": {"rebalance_protocol": "cooperative", "task_assignor": "sticky"},
    "cooperative, warm-up": {
        "rebalance_protocol": "cooperative",
        "task_assignor": "high_availability",
        "max_warmup_replicas": PARTITIONS,
        "acceptable_recovery_lag": 2000,
    },
}
BUCKETS_MS: Final = (50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)
BAR: Final = 60


@dataclass(slots=True)
class Downtime:
    """The longest gap of each live key, in ms."""

    mode: str
    gaps_ms: dict[bytes, int]
    took_s: float
    """From the start of the second instance until it ran its share."""
    restored: int

    @property
    def longest_ms(self) -> int:
        """The longest gap of all keys."""
        return max(self.gaps_ms.values())


@dataclass(slots=True)
class Gaps:
    """Collects the processing times of each key."""

    since_ms: int = 0
    last_ms: dict[bytes, int] = field(default_factory=dict)
    longest_ms: dict[bytes, int] = field(default_factory=dict)

    def note(self, record: ConsumerRecord) -> None:
        """Add an output of a key."""
        key = record.key or b""
        before = self.last_ms.get(key)
        if before is not None and record.timestamp >= self.since_ms:
            self.longest_ms[key] = max(self.longest_ms.get(key, 0), record.timestamp - before)
        self.last_ms[key] = record.timestamp


@asynccontextmanager
async def clients_of(bootstrap: str) -> AsyncIterator[tuple[Admin, Producer]]:
    """The clients of the benchmark itself."""
    async with Admin(bootstrap) as admin, Producer(bootstrap, linger_ms=2, batch_bytes=65536) as producer:
        yield admin, producer


async def make_topic(admin: Admin, name: str, partitions: int, **configs: str) -> None:
    """Create a topic, and wait until it is usable."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    await admin.create_topics([NewTopic(name=name, partitions=partitions, configs=settings)])
    await admin.wait_for_topic(name)


async def downtimes(bootstrap: str, directory: Path, *, keys: int, live: int) -> list[Downtime]:
    """Scale out once in each mode. The state is built once, and stays on the first instance's disk."""
    async with clients_of(bootstrap) as (admin, producer):
        await make_topic(admin, "clicks", PARTITIONS)
        await make_topic(admin, "counts", PARTITIONS, message_timestamp_type="LogAppendTime")
        first = Instance(
            "first", COUNTS, application_id="counts", bootstrap=bootstrap, directory=directory, settings=_settings({})
        )
        with working(f"{keys:,} keys of state"):
            await first.start()
            await send_all(producer, "clicks", ((b"key-%07d" % number, PAGE) for number in range(keys)))
            await first.until(lambda one: one.status.get("processed", 0) >= keys, "all keys", quiet_s=300)
            await first.stop()
        found = []
        for mode, settings in MODES.items():
            with working(mode):
                found.append(await _scale_out(bootstrap, directory, producer, first, mode, settings, keys, live))
    return found


async def _scale_out(
    bootstrap: str,
    directory: Path,
    producer: Producer,
    first: Instance,
    mode: str,
    settings: Mapping[str, object],
    keys: int,
    live: int,
) -> Downtime:
    """Scale out from one instance to two under load."""
    first = first.like("first", _settings(settings))
    second = first.like(f"second-{mode.replace(', ', '-')}", _settings(settings))
    chosen = [b"key-%07d" % (number * (keys // live)) for number in range(live)]
    gaps = Gaps()
    await first.start()
    await first.until(lambda one: len(one.running) == PARTITIONS, "everything runs", quiet_s=300)
    feeding = asyncio.create_task(_feed(producer, chosen))
    try:
        await asyncio.sleep(SETTLE_S)
        gaps.since_ms = int(time.time() * 1000)
        started_s = time.perf_counter()
        await second.start()
        half = PARTITIONS // 2
        await asyncio.gather(
            second.until(lambda one: len(one.running) == half, "half of the tasks run there", quiet_s=300),
            first.until(lambda one: len(one.running) == half, "half of the tasks run here", quiet_s=300),
        )
        took_s = time.perf_counter() - started_s
        await asyncio.sleep(SETTLE_S)
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    await producer.flush()
    restored = second.status.get("restored", 0)
    await _drain(bootstrap, gaps, until_ms=int(time.time() * 1000))
    await second.stop()
    await first.until(lambda one: len(one.running) == PARTITIONS, "everything runs again", quiet_s=300)
    await first.stop()
    return Downtime(mode, {key: gaps.longest_ms.get(key, 0) for key in chosen}, took_s, restored)


def _settings(settings: Mapping[str, object]) -> dict[str, object]:
    return {"heartbeat_interval_ms": 100, "commit_interval_ms": 100, **settings}


async def _feed(producer: Producer, keys: Sequence[bytes]) -> None:
    """Send a record of every key, again and again."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        for key in keys:
            await producer.send("clicks", PAGE, key)
        due += 1 / ROUNDS_PER_S
        await asyncio.sleep(max(0.0, due - loop.time()))


async def _drain(bootstrap: str, gaps: Gaps, *, until_ms: int) -> None:
    """Read the recent output; the rest of the topic belongs to earlier runs."""
    async with Output(bootstrap, "counts", since_ms=gaps.since_ms - int(1000 * SETTLE_S)) as output:
        output.on_record = gaps.note
        await output.follow(lambda one: one.idle_s > 1.0 and one.records > 0, quiet_s=120)


async def exactness(bootstrap: str, directory: Path, *, flights: int) -> dict[str, Any]:
    """Process the year's flights through scaling, kills and resizes."""
    rows = load(flights)
    expected = example.batch(rows)
    moments: list[str] = []
    async with clients_of(bootstrap) as (admin, producer):
        await make_topic(admin, "flights", SOURCE_PARTITIONS)
        await make_topic(admin, "flights-per-aircraft", 4)
        one = Instance(
            "one", FLIGHTS, application_id="flights", bootstrap=bootstrap, directory=directory, settings=_settings({})
        )
        instances = [one, *(one.like(name, _settings({})) for name in ("two", "three", "four"))]
        feeding = asyncio.create_task(send_all(producer, "flights", rows, per_s=flights / 40))
        await one.start()
        await scale_out_and_in(instances, moments.append)
        for count in RESIZES:
            await admin.create_partitions("flights", count, allow_shrink=True)
            moments.append(f"flights has {count} partitions")
            await asyncio.sleep(2)
        await instances[1].stop()
        await _all_run(instances[:1], max(RESIZES))  # merged partitions keep their records, and their tasks
        moments.append("1 instance")
        await feeding
        async with Output(bootstrap, "flights-per-aircraft") as output:
            await output.follow(lambda seen: seen.table == expected, quiet_s=120)
        moves = {name: sum(each.moves.get(name, 0) for each in instances) for name in ("deliveries", "keys", "held")}
        for each in instances:
            await each.stop()
    return {"aircraft": len(expected), "flights": len(rows), "moments": moments, **moves}


async def scale_out_and_in(instances: Sequence[Instance], note: Callable[[str], None]) -> None:
    """Scale from one instance to all, kill and restart one, and scale back to two."""
    first, *others = instances
    await first.until(lambda one: len(one.running) == 4, "all tasks run")
    await asyncio.gather(*(other.start() for other in others))
    await asyncio.gather(*(one.until(lambda each: len(each.running) == 1, "has its task") for one in instances))
    note(f"{len(instances)} instances, a task each")
    await others[0].kill()
    note("one is killed")
    await others[0].start()
    await others[0].until(lambda one: len(one.running) >= 1, "has a task again")
    note("and is back")
    for other in others[1:]:
        await other.stop()
    await _all_run(instances[:2], 4)
    note("2 instances")


async def _all_run(instances: Sequence[Instance], tasks: int) -> None:
    waits: list[Awaitable[None]] = [
        one.until(lambda _: sum(len(each.running) for each in instances) == tasks, "all tasks run") for one in instances
    ]
    await asyncio.gather(*waits)


def show_downtimes(found: Sequence[Downtime], keys: int) -> None:
    """Print a table, and a plot of the waiting times of keys."""
    table(
        f"per-key downtime when a second instance joins, {keys:,} keys of state",
        *("", "longest", "median key", "keys above 1 s", "second runs its half after", "records restored there"),
        rows=[
            (
                one.mode,
                f"{one.longest_ms:,} ms",
                f"{median(one.gaps_ms.values()):,.0f} ms",
                f"{sum(gap > 1000 for gap in one.gaps_ms.values())} of {len(one.gaps_ms)}",
                f"{one.took_s:.1f} s",
                f"{one.restored:,}",
            )
            for one in found
        ],
    )
    for one in found:
        console.print(f"{one.mode}: live keys by their longest gap")
        edges = (0, *BUCKETS_MS, 10**9)
        for low, high in itertools.pairwise(edges):
            share = sum(low <= gap < high for gap in one.gaps_ms.values()) / len(one.gaps_ms)
            if share:
                label = f"{low:,} ms and more" if high == 10**9 else f"below {high:,} ms"
                console.print(f"  {label:>20}  {'█' * max(1, round(BAR * share))} {share:.0%}")


def figures_of(found: Sequence[Downtime]) -> list[Figure]:
    eager, _, warm = found
    ratio = eager.longest_ms / max(warm.longest_ms, 1)
    return [
        Figure(
            "streams: longest downtime of a key, warm-up",
            f"{WARM_UP_AIM:.0f}x shorter than eager",
            f"{warm.longest_ms:,} ms, {ratio:.0f}x",
            f"eager: {eager.longest_ms:,} ms",
            ratio >= WARM_UP_AIM,
        )
    ]


def measure(*, keys: int = KEYS, live: int = LIVE, flights: int | None = None, only: str = "") -> list[Figure]:
    """Run everything, on one cluster of three brokers in its own process."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="anabranch-streams-") as directory, running("anabranch") as cluster:
        if only != "exactness":
            found = asyncio.run(downtimes(cluster.bootstrap, Path(directory), keys=keys, live=live))
            show_downtimes(found, keys)
            figures += figures_of(found)
        if only != "downtime":
            with working("a year of flights through resizes and kills"):
                facts = asyncio.run(exactness(cluster.bootstrap, Path(directory), flights=flights or example_size()))
            console.print("; ".join(facts["moments"]))
            steps = list(itertools.pairwise((SOURCE_PARTITIONS, *RESIZES)))
            predicted = sum(linear_hashing.moved_share(1, before, after) for before, after in steps)
            console.print(
                f"{facts['flights']:,} flights of {facts['aircraft']:,} aircraft: the aggregate is exact; "
                f"{facts['keys']:,} keys' state moved, {facts['keys'] / facts['aircraft']:.3f} per aircraft; "
                f"{predicted:.3f} is the share of all keys that {' and '.join(f'{a} -> {b}' for a, b in steps)} move "
                f"(an aircraft that has not flown yet has no state)"
            )
            figures.append(Figure("streams: aggregate over resizes and kills", "exact", "exact", "a loop", True))
    return figures


def example_size() -> int:
    from anabranch.demo.flights import COUNT

    return COUNT


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--live", type=int, default=LIVE)
    parser.add_argument("--flights", type=int, default=None)
    parser.add_argument("--only", choices=("downtime", "exactness"), default="")
    options = parser.parse_args()
    figures = measure(keys=options.keys, live=options.live, flights=options.flights, only=options.only)
    summary(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
