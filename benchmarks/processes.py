"""One process for all brokers against one process for each: records per second, and processor time, with acks=all.

librdkafka fills a topic of four partitions and three replicas in each cluster, in alternating rounds of the same run.
Processor time is that of all processes of the cluster, with its ZooKeeper and without the client. The processes can
only be faster if cores are idle: on two cores, the client and other programs use a part of the second one.

    python -m benchmarks.processes [--rounds 7]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.peers import Peer, anabranch_command, running_command
from benchmarks.report import Figure, median, run_benchmark, table, times, working
from benchmarks.throughput import RECORD, RECORDS, create_topic, delete_topic, produced_per_s

ROUNDS: Final = 7
TOPIC: Final = "benchmark"
KINDS: Final[dict[str, list[str]]] = {"one process": [], "--processes": ["--processes"]}
GB: Final = 1e9


def processor_s(peer: Peer) -> float:
    """Processor seconds of all processes of a cluster."""
    ran_ns = 0
    for pid in family(peer.process.pid):
        for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            ran_ns += int(thread.read_text().split()[0])
    return ran_ns / 1e9


def family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from family(int(child))


def measure(rounds: int = ROUNDS) -> list[Figure]:
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    costs: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with (
        working("processes") as status,
        running_command("one process", anabranch_command()) as one,
        running_command("--processes", [*anabranch_command(), "--processes"]) as several,
    ):
        peers = dict(zip(KINDS, (one, several), strict=True))
        for number in range(rounds):
            for kind, peer in peers.items():
                status.update(f"processes: {kind}, round {number + 1} of {rounds}")
                topic = f"{TOPIC}-{number}"
                create_topic(peer.bootstrap, topic)
                before_s = processor_s(peer)
                rates[kind] += produced_per_s(peer.bootstrap, topic, "all", 1)
                costs[kind].append((processor_s(peer) - before_s) / (2 * RECORDS * len(RECORD) / GB))  # and a warm-up
                delete_topic(peer.bootstrap, topic)
        load = os.getloadavg()[0]
    faster = times(median(rates["--processes"]), median(rates["one process"]))
    dearer = times(median(costs["--processes"]), median(costs["one process"]))
    table(
        f"acks=all, three replicas, records of {len(RECORD)} bytes, median of {rounds} rounds of {RECORDS}",
        *("", "records/s", "from", "to", "processor s for each GB", "from", "to"),
        rows=[
            (
                kind,
                *(f"{found:,.0f}" for found in (median(rates[kind]), min(rates[kind]), max(rates[kind]))),
                *(f"{found:.1f}" for found in (median(costs[kind]), min(costs[kind]), max(costs[kind]))),
            )
            for kind in KINDS
        ],
        note=f"{os.cpu_count()} cores, load average {load:.1f}; processes: {faster} the rate, {dearer} processor time",
    )
    return [
        Figure(
            "acks=all in processes, 1 KiB records",
            "shown",
            f"{median(rates['--processes']):,.0f}/s, {dearer} processor time",
            f"one process {median(rates['one process']):,.0f}/s ({faster})",
        )
    ]


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(__doc__, measure, arguments, rounds=(ROUNDS, "measured rounds"))


if __name__ == "__main__":
    sys.exit(main())
