"""State of many keys in Streams and its peers: restoring it from the changelog, and handing half of it to an instance.

One instance counts a record of each key, exactly once. It is stopped, and started again: with its state, and without.
Each time a record of some live keys waits for it, and the clock stops when all of their counts are out, which are right
only if the state is. Then the live keys get records steadily, and a second instance starts with an empty disk. The
hand-over time is the longest time that a live key is without output until both instances share the partitions.

    ANABRANCH_KAFKA_JARS=/folder/of/kafka-streams python -m benchmarks streams_restore [--keys 200000] [--slow 40000]
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch import Admin, Consumer, Producer
from benchmarks.peers import running
from benchmarks.report import Figure, console, median, run_benchmark, table, working
from benchmarks.stream_applications.live_load import PARTITIONS, LiveApplication, longest_gaps_ms
from benchmarks.stream_applications.peers import (
    EXACTLY_ONCE,
    FAUST,
    JAVA,
    JAVA_WITHOUT_CACHE,
    OWN,
    QUIX,
    StreamsPeer,
    peers,
)
from benchmarks.stream_applications.truth import WrongOutput

KEYS: Final = 200_000
SLOW_KEYS: Final = 40_000
SETTLE_S: Final = 3.0
JAVA_AIM: Final = 3.0
PATIENCE_S: Final = 420.0


@dataclass(frozen=True)
class Restored:
    """What one peer took."""

    keys: int
    restart_s: float
    """From the start of the process with its state on disk to the counts of all live keys."""
    restore_s: float
    """The same without state on disk."""
    restore_processor_s: float
    gaps_ms: Sequence[int] = field(repr=False)
    """The longest gap of each live key while the second instance takes over."""
    shared: bool
    """Whether both instances had partitions in the end."""


async def run(peer: StreamsPeer, bootstrap: str, directory: Path, keys: int) -> Restored:
    """Run one peer. Raises WrongOutput."""
    application = LiveApplication(peer, bootstrap, directory, keys, EXACTLY_ONCE, 0)
    async with Admin(bootstrap) as admin, Producer(bootstrap, linger_ms=2) as producer:
        await application.create_topics(admin)
        await application.fill(producer)
        async with application.output() as consumer:
            try:
                return await _measured(application, admin, producer, consumer)
            finally:
                await application.stop_all()


async def _measured(application: LiveApplication, admin: Admin, producer: Producer, consumer: Consumer) -> Restored:
    first = await application.start("first")
    await application.drain(consumer)
    await application.stop(first)
    taken: list[tuple[float, float]] = []
    for keep_state in (True, False):
        await application.send_round(producer)
        await producer.flush()
        started_s = time.monotonic()
        first = await application.start("first", keep_state=keep_state)
        await application.drain(consumer)
        taken.append((time.monotonic() - started_s, first.processor_s))
        if keep_state:
            await application.stop(first)
    async with application.feeding(producer):
        await asyncio.sleep(SETTLE_S)
        since_ms = int(time.time() * 1000)
        await application.start("second")
        shared = await application.until_assigned(admin, 2, PARTITIONS)
        await asyncio.sleep(SETTLE_S)
    await application.drain(consumer)
    (restart_s, _), (restore_s, restore_processor_s) = taken
    gaps_ms = longest_gaps_ms(application.times_ms, since_ms)
    return Restored(application.keys, restart_s, restore_s, restore_processor_s, gaps_ms, shared)


def show(found: dict[str, Restored], absent: Sequence[StreamsPeer]) -> None:
    """Print one table."""
    table(
        "state restored and handed over, exactly once",
        *("", "keys", "restart, s", "restore, s", "processor s", "longest gap", "median key", "shared"),
        rows=[
            (
                name,
                f"{one.keys:,}",
                f"{one.restart_s:.1f}",
                f"{one.restore_s:.1f}",
                f"{one.restore_processor_s:.1f}",
                f"{max(one.gaps_ms):,} ms",
                f"{median(one.gaps_ms):,.0f} ms",
                "yes" if one.shared else "no",
            )
            for name, one in found.items()
        ],
        note="; ".join(f"not measured: {one.name} ({one.absent})" for one in absent),
    )


def figures_of(found: dict[str, Restored]) -> list[Figure]:
    """The aims: sooner than the peers in Python, and at most so many times as long as Kafka Streams."""
    own = found.get(OWN)
    if own is None:
        return [Figure("streams: state restored", "right results", "wrong results", "", False)]
    figures = []
    for name, aim in ((FAUST, 1.0), (QUIX, 1.0), (JAVA_WITHOUT_CACHE, JAVA_AIM)):
        if peer := found.get(name):
            same = f"{own.keys:,} keys, {name}: {peer.keys:,}"
            figures += [
                Figure(
                    f"restore ({same})",
                    f"<= {aim:g} x {name}",
                    f"{own.restore_s:.1f} s",
                    f"{peer.restore_s:.1f} s",
                    own.restore_s <= aim * peer.restore_s,
                ),
                Figure(
                    f"longest gap of a key in a hand-over ({same})",
                    f"<= {aim:g} x {name}",
                    f"{max(own.gaps_ms):,} ms",
                    f"{max(peer.gaps_ms):,} ms",
                    max(own.gaps_ms) <= aim * max(peer.gaps_ms),
                ),
            ]
    return figures


def measure(keys: int = KEYS, slow: int = SLOW_KEYS) -> list[Figure]:
    everyone = [one for one in peers() if one.name != JAVA]
    console.print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    found: dict[str, Restored] = {}
    with running("anabranch") as cluster:
        for peer in everyone:
            if peer.absent:
                continue
            count = slow if peer.name in (FAUST, QUIX) else keys
            with working(f"{count:,} keys: {peer.name}"), tempfile.TemporaryDirectory(prefix="streams-") as place:
                try:
                    trial = asyncio.wait_for(run(peer, cluster.bootstrap, Path(place), count), PATIENCE_S)
                    found[peer.name] = asyncio.run(trial)
                except TimeoutError:
                    console.print(f"{peer.name} did not come to its end in {PATIENCE_S / 60:.0f} minutes")
                except WrongOutput as error:
                    console.print(str(error), markup=False)
                else:
                    console.print(f"{peer.name}: {found[peer.name]}", style="dim")
    show(found, [one for one in everyone if one.absent])
    return figures_of(found)


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        measure,
        arguments,
        keys=(KEYS, "of state"),
        slow=(SLOW_KEYS, "of state for the peers in Python, which are slow"),
    )


if __name__ == "__main__":
    sys.exit(main())
