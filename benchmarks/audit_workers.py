"""The order audit on standalone Spark clusters of one and two workers: deliveries per second.

Each worker has one core and an executor. The rate is that of `audit`: the batches after the warm-up, with all their
costs. The sizes take turns. The Kafka cluster and the driver use the same cores, so a machine with two cores cannot
double the rate.

    python -m benchmarks.audit_workers [--records 2000000] [--keys 200000] [--rounds 3]
"""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from anabranch.spark_jobs import shipping
from anabranch.spark_jobs.session import AuditSpark
from benchmarks.audit import rate
from benchmarks.peers import running
from benchmarks.report import Figure, median, run_benchmark, table, working
from tests.spark_jobs.standalone import StandaloneCluster

RECORDS: Final = 2_000_000
KEYS: Final = 200_000
ROUNDS: Final = 3
PARTITIONS: Final = 4
AIM: Final = 1.8


def audited_per_s(workers: int, keys: int, records: int) -> float:
    """Deliveries per second on a new cluster of so many workers. Changes this process's environment."""
    with (
        tempfile.TemporaryDirectory() as place,
        running("anabranch") as peer,
        StandaloneCluster(Path(place), workers) as cluster,
    ):
        directory = Path(place)
        os.environ["PYTHONPATH"] = str(shipping.pack(directory))  # for processes that only the driver starts
        conf = {"spark.executor.memory": "512m", "spark.pyspark.python": str(cluster.python)}
        with AuditSpark(directory, master=cluster.url, conf=conf) as session:
            return rate(session, peer.bootstrap, directory, keys, PARTITIONS, records).audited


def measure(records: int = RECORDS, keys: int = KEYS, rounds: int = ROUNDS) -> list[Figure]:
    found: dict[int, list[float]] = {1: [], 2: []}
    with working("the order audit on a Spark cluster") as status:
        for number in range(rounds):
            for workers, rates in found.items():
                status.update(f"round {number + 1} of {rounds}: workers: {workers}")
                # In a process of its own: PySpark keeps the JVM of its first session.
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                    rates.append(process.submit(audited_per_s, workers, keys, records).result())
    table(
        f"order audit: {records:,} deliveries of {keys:,} keys, medians of {rounds} rounds",
        *("workers", "audited/s", "range"),
        rows=[
            (f"{workers}", f"{median(rates):,.0f}", f"{min(rates):,.0f}-{max(rates):,.0f}")
            for workers, rates in found.items()
        ],
    )
    ratio = median(found[2]) / median(found[1])
    return [
        Figure(
            "order audit, two workers of one core",
            f"{AIM}x of one",
            f"{median(found[2]):,.0f}/s",
            f"one worker {median(found[1]):,.0f}/s, {ratio:.2f}x",
            ratio >= AIM,
        )
    ]


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        measure,
        arguments,
        records=(RECORDS, "deliveries"),
        keys=(KEYS, "that the deliveries have in turn"),
        rounds=(ROUNDS, "how often each size is measured"),
    )


if __name__ == "__main__":
    sys.exit(main())
