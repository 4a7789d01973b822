"""The time from the start of a process to the first acknowledged record, and the memory: three brokers, no Java.

The clock starts before the process and stops when librdkafka, with its defaults (acks=all), reports its first record as
delivered: start the interpreter, three brokers and a controller, create the topic, replicate the record. The peer is
librdkafka's mock cluster in a fresh interpreter, measured in the same way.

    python -m benchmarks.startup [--rounds 7]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from benchmarks.peers import COMMANDS, produce_one, running
from benchmarks.report import Figure, median, run_benchmark, table, times, working

FIRST_RECORD_S_AIM: Final = 0.4
RESIDENT_MB_AIM: Final = 80.0
ROUNDS: Final = 7


@dataclass(frozen=True, slots=True)
class Start:
    """One start of one cluster."""

    ready_s: float
    first_record_s: float
    processor_s: float
    waited_s: float
    resident_mb: float


def start(name: str) -> Start:
    """Start a cluster, produce one record, read its memory, stop it."""
    with running(name) as peer:
        acknowledged_s = produce_one(peer.bootstrap, "first")
        processor_s, waited_s = peer.processor_s
        return Start(
            ready_s=peer.ready_s - peer.started_s,
            first_record_s=acknowledged_s - peer.started_s,
            processor_s=processor_s,
            waited_s=waited_s,
            resident_mb=peer.resident_mb,
        )


def measure(rounds: int = ROUNDS) -> list[Figure]:
    starts: dict[str, list[Start]] = {name: [] for name in COMMANDS}
    with working("starting clusters") as status:
        for name in COMMANDS:
            start(name)  # warms up bytecode and page cache
        for number in range(rounds):
            for name in COMMANDS:
                status.update(f"starting clusters: round {number + 1} of {rounds}, {name}")
                starts[name].append(start(name))
    own, mock = (
        Start(*(median(column) for column in zip(*(_values(one) for one in starts[name]), strict=True)))
        for name in ("anabranch", "mock")
    )
    rows = [
        ("ready, ms", own.ready_s, mock.ready_s, 1e3),
        ("first acknowledged record, ms", own.first_record_s, mock.first_record_s, 1e3),
        ("  processor time until then, ms", own.processor_s, mock.processor_s, 1e3),
        ("  waiting for a free core, ms", own.waited_s, mock.waited_s, 1e3),
        ("resident memory, MB", own.resident_mb, mock.resident_mb, 1),
    ]
    best_s = min(one.first_record_s for one in starts["anabranch"])
    table(
        f"startup: medians of {rounds} starts, three brokers each",
        *("", "anabranch", "mock", "ratio"),
        rows=[(what, f"{a * unit:.0f}", f"{b * unit:.0f}", times(a, b)) for what, a, b, unit in rows],
        note=f"fastest start of anabranch: {best_s * 1000:.0f} ms",
    )
    return [
        Figure(
            "process start to first acknowledged record",
            f"< {FIRST_RECORD_S_AIM:.1f} s",
            f"{own.first_record_s:.3f} s (best {best_s:.3f} s, processor {own.processor_s:.3f} s)",
            f"mock cluster {mock.first_record_s:.3f} s (processor {mock.processor_s:.3f} s)",
            own.first_record_s < FIRST_RECORD_S_AIM,
        ),
        Figure(
            "resident memory after it, three brokers",
            f"< {RESIDENT_MB_AIM:.0f} MB",
            f"{own.resident_mb:.0f} MB",
            f"mock cluster {mock.resident_mb:.0f} MB",
            own.resident_mb < RESIDENT_MB_AIM,
        ),
    ]


def _values(one: Start) -> tuple[float, ...]:
    return one.ready_s, one.first_record_s, one.processor_s, one.waited_s, one.resident_mb


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(__doc__, measure, arguments, rounds=(ROUNDS, "starts of each cluster"))


if __name__ == "__main__":
    sys.exit(main())
