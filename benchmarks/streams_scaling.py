"""Instances that come and go while the input is resized: the longest time that a key is without output.

An application counts by key, exactly once, with a standby of each task. Some live keys get records steadily. It grows
from one instance to four while the input grows from 4 to 8 partitions, and shrinks to two instances while the input
shrinks to 6. Kafka Streams has the same load and the same instances, but no resize, which ends its applications; this
package runs without resizes, too. In the end each key's count must be the number of its records. The first row of each
run has the gaps of one instance while nothing changes: those of the machine.

    ANABRANCH_KAFKA_JARS=/folder/of/kafka-streams python -m benchmarks streams_scaling [--keys 100000] [--standbys 1]
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch import Admin, Consumer, Producer
from benchmarks.peers import running
from benchmarks.report import Figure, console, median, run_benchmark, table, working
from benchmarks.stream_applications.live_load import PARTITIONS, LiveApplication, longest_gaps_ms
from benchmarks.stream_applications.peers import EXACTLY_ONCE, JAVA, JAVA_WITHOUT_CACHE, OWN, StreamsPeer, peers
from benchmarks.stream_applications.truth import WrongOutput

KEYS: Final = 100_000
STANDBYS: Final = 1
SETTLE_S: Final = 3.0
CONTROL_S: Final = 10.0
"""How long one instance runs alone, to know the gaps that the load of the machine makes."""
AIM_MS: Final = 1000
STEPS: Final = ((4, 8), (2, 6))
"""The instances and the partitions after each step, from one instance and `PARTITIONS`."""


@dataclass(frozen=True)
class Step:
    """What one change of the number of instances has cost."""

    what: str
    took_s: float
    """Until the instances shared all partitions."""
    shared: bool
    gaps_ms: Sequence[int]
    """The longest gap of each live key."""


async def run(peer: StreamsPeer, bootstrap: str, directory: Path, keys: int, standbys: int, resize: bool) -> list[Step]:
    """Run all steps with one peer. Raises WrongOutput."""
    application = LiveApplication(peer, bootstrap, directory, keys, EXACTLY_ONCE, standbys)
    async with Admin(bootstrap) as admin, Producer(bootstrap, linger_ms=2) as producer:
        await application.create_topics(admin)
        await application.fill(producer)
        async with application.output() as consumer:
            try:
                return await _steps(application, admin, producer, consumer, resize)
            finally:
                await application.stop_all()


async def _steps(
    application: LiveApplication, admin: Admin, producer: Producer, consumer: Consumer, resize: bool
) -> list[Step]:
    instances = [await application.start("0")]
    await application.drain(consumer)
    parts: list[tuple[str, float, bool, float, float]] = []
    partitions = PARTITIONS
    async with application.feeding(producer):
        await asyncio.sleep(SETTLE_S)
        since_s = time.time()
        await asyncio.sleep(CONTROL_S)
        parts.append(("nothing changes", CONTROL_S, True, since_s, time.time()))
        for count, resized in STEPS:
            since_s, before = time.time(), (len(instances), partitions)
            partitions = resized if resize else partitions
            await _change(application, admin, instances, count, partitions if resize else 0)
            shared = await application.until_assigned(admin, count, partitions)
            took_s = time.time() - since_s
            await asyncio.sleep(SETTLE_S)
            what = f"{before[0]} -> {count} instances, {before[1]} -> {partitions} partitions"
            parts.append((what, took_s, shared, since_s, time.time()))
    await application.drain(consumer)
    return [
        Step(what, took_s, shared, longest_gaps_ms(application.times_ms, int(since_s * 1000), until_s * 1000))
        for what, took_s, shared, since_s, until_s in parts
    ]


async def _change(
    application: LiveApplication, admin: Admin, instances: list[object], count: int, partitions: int
) -> None:
    """Start or stop instances, and resize the input meanwhile; 0 partitions: do not."""

    async def scale() -> None:
        while len(instances) < count:
            instances.append(await application.start(str(len(instances))))
        leaving, instances[count:] = instances[count:], []
        await asyncio.gather(*(application.stop(one) for one in leaving))  # type: ignore[arg-type]

    async def resize() -> None:
        if partitions:
            await admin.create_partitions(application.source, partitions, allow_shrink=True)

    await asyncio.gather(scale(), resize())


def show(name: str, steps: Sequence[Step]) -> list[tuple[str, ...]]:
    """The rows of one run."""
    return [
        (
            f"{name}: {one.what}",
            f"{max(one.gaps_ms):,} ms",
            f"{median(one.gaps_ms):,.0f} ms",
            f"{sum(gap > AIM_MS for gap in one.gaps_ms)} of {len(one.gaps_ms)}",
            f"{one.took_s:.1f} s" if one.shared else "not in time",
        )
        for one in steps
    ]


def figures_of(found: dict[str, list[Step]]) -> list[Figure]:
    """The aim: no key is without output for a second."""
    java = found.get(JAVA_WITHOUT_CACHE)
    worst = {name: max(max(one.gaps_ms) for one in steps[1:]) for name, steps in found.items()}
    return [
        Figure(
            f"longest gap of a key, {name}",
            f"< {AIM_MS:,} ms",
            f"{gap:,} ms",
            f"not here: {JAVA}" if java is None else f"{JAVA}, not resized: {worst[JAVA_WITHOUT_CACHE]:,} ms",
            gap < AIM_MS,
        )
        for name, gap in worst.items()
        if name != JAVA_WITHOUT_CACHE
    ]


def measure(keys: int = KEYS, standbys: int = STANDBYS) -> list[Figure]:
    everyone = {one.name: one for one in peers()}
    own, java = everyone[OWN], everyone[JAVA_WITHOUT_CACHE]
    plans = [(f"{OWN}, resized", own, True), (f"{OWN}, not resized", own, False), (JAVA_WITHOUT_CACHE, java, False)]
    console.print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    found: dict[str, list[Step]] = {}
    with running("anabranch") as cluster:
        for name, peer, resize in plans:
            if peer.absent:
                continue
            with working(name), tempfile.TemporaryDirectory(prefix="streams-") as place:
                try:
                    steps = asyncio.run(run(peer, cluster.bootstrap, Path(place), keys, standbys, resize))
                except WrongOutput as error:
                    console.print(f"{name}: {error}", markup=False)
                    continue
                found[name] = steps
                for row in show(name, steps):
                    console.print("  ".join(row), style="dim")
    table(
        f"instances that come and go, {keys:,} keys of state, {standbys} standby copies, exactly once",
        *("", "longest gap", "median key", f"above {AIM_MS / 1000:g} s", "shared after"),
        rows=[row for name, steps in found.items() for row in show(name, steps)],
        note=f"not measured: {java.name} ({java.absent})" if java.absent else "",
    )
    return figures_of(found)


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        measure,
        arguments,
        keys=(KEYS, "of state"),
        standbys=(STANDBYS, "copies of each task's state"),
    )


if __name__ == "__main__":
    sys.exit(main())
