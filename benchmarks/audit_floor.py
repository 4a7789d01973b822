"""The order audit from its process's start to its verdict, in comparison with jobs that only count.

Deliveries are written in the consumers' format. Then jobs on local[2] alternately read the topic to its end, each in
its own process, including Spark's start: the audit with its verdict; one that splits each run and counts deliveries per
bucket, which every audit must do; and one that counts the topic's records, which hold 500 deliveries each. All are
streams with a checkpoint from the same source. The figures are seconds of wall-clock time, and of processor time of all
processes of a job, including the JVM and its Python workers.

    python -m benchmarks.audit_floor [--records 3000000] [--keys 20000] [--partitions 4] [--rounds 3]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from anabranch.spark_jobs import audit, events, inputs
from anabranch.spark_jobs.session import AuditSpark
from benchmarks.audit import Deliveries
from benchmarks.peers import running
from benchmarks.report import Figure, console, median, summary, table, times, working

RECORDS: Final = 3_000_000
KEYS: Final = 20_000
PARTITIONS: Final = 4
ROUNDS: Final = 3
AIM_PER_S: Final = 200_000
AIM_TIMES: Final = 1.5
TOPIC: Final = "deliveries"
LOOK_S: Final = 0.05
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
AUDIT: Final = "audit, with its verdict"
APART: Final = "takes runs apart, and counts"
ROWS: Final = "counts records"


def run_audit(session: Any, servers: str, directory: Path) -> int:
    """Run the whole audit; returns the number of deliveries."""
    target = audit.Target(servers, TOPIC, directory)
    query = audit.start(session, target, lambda _: None)
    query.processAllAvailable()
    query.stop()
    seen = audit.finish(session, target)
    if seen["out_of_order"] or seen["lost"] or seen["repeated"]:
        raise RuntimeError(f"the audit of a clean topic says {seen}")
    return seen["delivered"]


def run_apart(session: Any, servers: str, directory: Path) -> int:
    rows = audit.prepare_records(
        inputs.stream(session, servers, [TOPIC], headers=False, rows=audit.ROWS_PER_TRIGGER), None
    )
    counted = rows.mapInArrow(take_apart, "bucket int, deliveries bigint")
    return count(counted.groupBy("bucket").agg(F.sum("deliveries").alias("counted")), directory)


def run_rows(session: Any, servers: str, directory: Path) -> int:
    rows = inputs.stream(session, servers, [TOPIC], headers=False, rows=audit.ROWS_PER_TRIGGER)
    return count(rows.groupBy().agg(F.count("*").alias("counted")), directory)


def take_apart(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: the number of deliveries in rows of `audit.prepared`."""
    for batch in batches:
        counts = [len(events.read([value], [None]).number) for value in batch["value"].to_pylist()]
        yield pa.RecordBatch.from_pydict({"bucket": batch["bucket"], "deliveries": pa.array(counts, pa.int64())})


def count(counted: Any, directory: Path) -> int:
    """The final count of a stream, over all groups."""
    found: list[int] = []

    def take(batch: Any, _: int) -> None:
        found.append(sum(row["counted"] for row in batch.collect()))

    writer = counted.writeStream.outputMode("complete").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(processingTime=audit.TRIGGER).foreachBatch(take).start()
    query.processAllAvailable()
    query.stop()
    return found[-1]


JOBS: Final = {AUDIT: run_audit, APART: run_apart, ROWS: run_rows}


def spent_s(group: int) -> dict[int, float]:
    """Process id -> used processor seconds, for the living processes of a session."""
    found = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == group:
                    found[int(process.name)] = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return found


def run(job: str, servers: str, expected: int) -> tuple[float, float]:
    """Run one job in its own process: wall-clock seconds and processor seconds."""
    with tempfile.TemporaryDirectory() as directory:
        started_s = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.audit_floor", "--job", job, servers, directory],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        used: dict[int, float] = {}
        while process.poll() is None:
            used |= spent_s(process.pid)
            time.sleep(LOOK_S)
        took_s = time.perf_counter() - started_s
    assert process.stdout is not None
    output = process.stdout.read().split()
    if process.returncode or not output or int(output[-1]) != expected:
        raise RuntimeError(f"the job that {job} ended with {process.returncode} and said {output}, not {expected}")
    return took_s, sum(used.values())


def measure(
    records: int = RECORDS, keys: int = KEYS, partitions: int = PARTITIONS, rounds: int = ROUNDS
) -> list[Figure]:
    found: dict[str, list[tuple[float, float]]] = {job: [] for job in JOBS}
    with working("the audit beside jobs that count") as status, running("anabranch") as peer:
        deliveries = Deliveries(peer.bootstrap, TOPIC, keys, partitions)
        written = deliveries.write(records)
        expected = {AUDIT: written, APART: written, ROWS: deliveries.stored}
        for number in range(rounds):
            for job, rows in found.items():
                status.update(f"round {number + 1}: {job}")
                rows.append(run(job, peer.bootstrap, expected[job]))
    clock_s, processor_s = ({job: median(row[at] for row in rows) for job, rows in found.items()} for at in (0, 1))
    table(
        f"{written:,} deliveries of {keys:,} keys, {partitions} partitions, local[2], medians of {rounds} rounds",
        *("", "s", "deliveries/s", "processor s", "from", "to", "beside the audit's"),
        rows=[
            (
                job,
                f"{clock_s[job]:.1f}",
                f"{written / clock_s[job]:,.0f}",
                f"{processor_s[job]:.1f}",
                *(f"{pick(row[1] for row in rows):.1f}" for pick in (min, max)),
                times(processor_s[job], processor_s[AUDIT]),
            )
            for job, rows in found.items()
        ],
        note="from the start of each job's process to its end",
    )
    rate = written / clock_s[AUDIT]
    floors = [processor_s[job] for job in (APART, ROWS)]
    return [
        Figure(
            f"order audit, {keys:,} keys, Spark's start included",
            f"> {AIM_PER_S:,}/s",
            f"{rate:,.0f}/s",
            f"taken apart {written / clock_s[APART]:,.0f}/s",
            rate > AIM_PER_S,
        ),
        Figure(
            "order audit, processor time",
            f"< {AIM_TIMES} x counting",
            f"{processor_s[AUDIT]:.1f} s",
            f"deliveries {floors[0]:.1f} s ({times(processor_s[AUDIT], floors[0])}), "
            f"records {floors[1]:.1f} s ({times(processor_s[AUDIT], floors[1])})",
            processor_s[AUDIT] < AIM_TIMES * floors[0],
        ),
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=RECORDS, help=f"deliveries (default: {RECORDS})")
    parser.add_argument("--keys", type=int, default=KEYS, help=f"how many keys they have (default: {KEYS})")
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help=f"of the topic (default: {PARTITIONS})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of all jobs (default: {ROUNDS})")
    parser.add_argument("--job", nargs=3, metavar=("JOB", "SERVERS", "DIRECTORY"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.job:
        job, servers, directory = options.job
        with AuditSpark(Path(directory), master="local[2]") as session:
            print(JOBS[job](session, servers, Path(directory)), flush=True)
        return 0
    figures = measure(options.records, options.keys, options.partitions, options.rounds)
    console.print()
    summary(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
