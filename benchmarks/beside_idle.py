"""What idle partitions cost those that are written to: one producer, acks=all, beside more and more of them.

A cluster of three brokers runs in a process of its own, a fresh one for each size. Six partitions of three replicas are
written to by six connections, each with one small request at a time; the others hold nothing. Told are the requests a
second, the processor time of the cluster for each, and what the cluster uses while nobody asks anything of it.

    python -m benchmarks.beside_idle [--partitions 6 1000 4000 10000] [--seconds 10]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from anabranch import Admin, NewTopic
from anabranch.clients.connection import Connection
from benchmarks.latency import leader_of, small_produce
from benchmarks.peers import Peer, running
from benchmarks.report import Figure, curve, summary, table, working

PARTITIONS: Final = (6, 1000, 4000, 10000)
BUSY: Final = 6
REPLICAS: Final = 3
IN_A_TOPIC: Final = 500
SECONDS: Final = 10.0
SETTLED_S: Final = 5.0
LOSS_MAX: Final = 0.1
IDLE_AIM: Final = 0.01


@dataclass(frozen=True, slots=True)
class Beside:
    """How writing went beside so many partitions."""

    per_s: float
    processor_ms: float
    """Of the cluster, for each request."""
    idle: float
    """The part of one core that the cluster uses while nobody asks."""


async def keep_writing(bootstrap: str, topic: str, seconds: float) -> int:
    """How many requests are answered when each partition's connection sends one after the other."""
    end_s = time.perf_counter() + seconds

    async def write(partition: int) -> int:
        connection = await Connection.open(*leader_of(bootstrap, f"{topic}-{partition}"), client_id="beside")
        message = small_produce(f"{topic}-{partition}", acks=-1)
        count = 0
        while time.perf_counter() < end_s:
            answer = await connection.call(message)
            code = answer.responses[0].partition_responses[0].error_code
            if code:
                raise RuntimeError(f"a record was refused with error {code}")
            count += 1
        await connection.close()
        return count

    return sum(await asyncio.gather(*(write(partition) for partition in range(BUSY))))


async def beside(peer: Peer, partitions: int, seconds: float) -> Beside:
    """Create the partitions, look at how idle the cluster is, then write."""
    async with Admin(peer.bootstrap, request_timeout_ms=600_000) as admin:
        for number in range(BUSY):
            await admin.create_topics([NewTopic(name=f"busy-{number}", partitions=1, replication_factor=REPLICAS)])
        for start in range(BUSY, partitions, IN_A_TOPIC):
            count = min(IN_A_TOPIC, partitions - start)
            await admin.create_topics([NewTopic(name=f"idle-{start}", partitions=count, replication_factor=REPLICAS)])
    await keep_writing(peer.bootstrap, "busy", 1.0)
    await asyncio.sleep(SETTLED_S)
    before_s, _ = peer.processor_s
    await asyncio.sleep(seconds)
    idle = (peer.processor_s[0] - before_s) / seconds
    before_s, begun_s = peer.processor_s[0], time.perf_counter()
    count = await keep_writing(peer.bootstrap, "busy", seconds)
    took_s = time.perf_counter() - begun_s
    return Beside(count / took_s, (peer.processor_s[0] - before_s) * 1000 / count, idle)


def measure(partitions: Sequence[int] = PARTITIONS, seconds: float = SECONDS) -> list[Figure]:
    """Measure every size, print the table."""
    found: dict[int, Beside] = {}
    with working("writing beside idle partitions") as status:
        for count in partitions:
            status.update(f"writing to {BUSY} of {count} partitions")
            with running("anabranch") as peer:
                found[count] = asyncio.run(beside(peer, count, seconds))
    table(
        f"{BUSY} partitions are written to, acks=all, {REPLICAS} replicas, beside idle ones",
        *("partitions", "requests/s", "processor for each, ms", "one core while idle"),
        rows=[
            (f"{count}", f"{one.per_s:.0f}", f"{one.processor_ms:.2f}", f"{100 * one.idle:.1f} %")
            for count, one in found.items()
        ],
        note="processor time says more than the rate on a machine that others use, too",
    )
    curve(
        "processor time for each request",
        [(f"{count}", one.processor_ms) for count, one in found.items()],
        unit="ms",
    )
    return figures(found)


def figures(found: dict[int, Beside]) -> list[Figure]:
    """The processor time beside many against that beside none, and how idle many leave the cluster."""
    few = found[min(found)]
    lines = []
    for count, one in found.items():
        if one is not few:
            lines.append(
                Figure(
                    f"processor time for a request beside {count} partitions",
                    f"+{100 * LOSS_MAX:.0f} % at most",
                    f"{one.processor_ms:.2f} ms",
                    f"beside none {few.processor_ms:.2f} ms",
                    one.processor_ms <= (1 + LOSS_MAX) * few.processor_ms,
                )
            )
            lines.append(
                Figure(
                    f"one core while {count} partitions are idle",
                    f"{100 * IDLE_AIM:.0f} % at most",
                    f"{100 * one.idle:.1f} %",
                    f"{min(found)} partitions {100 * few.idle:.1f} %",
                    one.idle <= IDLE_AIM,
                )
            )
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Print the table and the aims."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS, help="how many there are in all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each measurement (default: 10)")
    options = parser.parse_args(arguments)
    summary(measure(options.partitions, options.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
