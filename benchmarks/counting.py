"""Streams' count per key compared with Faust: records per second of the application's processor time.

A topic of four partitions has records of a thousand keys; an application in its own process counts them by key, with
its default kind of state store and a changelog. It reads its clocks after a quarter of the records, and after all.
Faust takes part if ANABRANCH_FAUST names a Python that has `faust-streaming`, which is no dependency of this project.

    ANABRANCH_FAUST=/tmp/faust/bin/python python -m benchmarks.counting [--records 120000] [--rounds 3]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from anabranch.clients.streams.topology import Topology
from benchmarks.marking import RECORDS as RECORDS_VARIABLE
from benchmarks.marking import Marks
from benchmarks.peers import QUIET, anabranch_command, running
from benchmarks.report import Figure, median, run_benchmark, table, times, working
from benchmarks.throughput import PARTITIONS, create_topic

TOPIC: Final = "clicks"
RECORDS: Final = 120_000
KEYS: Final = 1_000
ROUNDS: Final = 3
AIM_TIMES: Final = 2.0
TIMEOUT_S: Final = 180.0
WAIT_S: Final = 60.0
FAUST: Final = os.environ.get("ANABRANCH_FAUST")
COUNTED: Final = re.compile(r"counted (\d+) in ([\d.e-]+) s and ([\d.e-]+) s")
FAUSTS: Final = """
import sys
import faust
from benchmarks.marking import Marks
name, broker, directory, topic, partitions = sys.argv[1:]
marks = Marks()
app = faust.App(
    name, broker="kafka://" + broker, store="memory://", topic_partitions=int(partitions), web_enabled=False,
    datadir=directory, consumer_auto_offset_reset="earliest",
)
clicks = app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
counts = app.Table("counts", default=int, partitions=int(partitions), key_type=bytes, value_type=int)

@app.agent(clicks)
async def count(stream):
    async for key, _ in stream.items():
        counts[key] += 1
        marks.one()

sys.argv[1:] = ["worker", "--without-web", "-l", "info"]
app.main()
"""
Rates = tuple[float, float]
"""Records per second, and per second of processor time."""


def topology() -> Topology:
    application, marks = Topology(), Marks()

    def add(_: bytes, __: bytes, count: int) -> int:
        marks.one()
        return count + 1

    application.stream(TOPIC).aggregate("counts", lambda: 0, add)
    return application


def own(name: str, bootstrap: str, directory: Path) -> list[str]:
    """The command of this package's application."""
    anabranch = anabranch_command()[0]
    where = ["--bootstrap-servers", bootstrap, "--state-dir", str(directory)]
    return [anabranch, "streams", f"{__file__}:topology", "--application-id", name, *where]


def fausts(name: str, bootstrap: str, directory: Path) -> list[str]:
    """The command of Faust's application."""
    assert FAUST is not None
    return [FAUST, "-c", FAUSTS, name, bootstrap.split(",")[0], str(directory), TOPIC, str(PARTITIONS)]


def fill(bootstrap: str, records: int) -> None:
    """Store the records, partitioned as by this package's producers."""
    create_topic(bootstrap, TOPIC, replicas=1)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": records,
            **QUIET,
        }
    )
    for number in range(records):
        producer.produce(TOPIC, b"page-%d" % (number % 40), b"key-%04d" % (number * 7919 % KEYS))
    if left := producer.flush(WAIT_S):
        raise RuntimeError(f"{left} records not delivered")


def run(command: list[str], records: int) -> Rates:
    """Run one application until it has counted everything. Raises RuntimeError if it does not."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, RECORDS_VARIABLE: str(records), "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    watch = threading.Timer(TIMEOUT_S, process.kill)
    watch.start()
    output: list[str] = []
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if match := COUNTED.search(line):
                count, clock_s, processor_s = map(float, match.groups())
                return count / clock_s, count / processor_s
            output.append(line)
    finally:
        watch.cancel()
        process.kill()
        process.wait()
    raise RuntimeError(f"it has not counted {records} records: {''.join(output[-20:])}")


def measure(records: int = RECORDS, rounds: int = ROUNDS) -> list[Figure]:
    makers: dict[str, Callable[[str, str, Path], list[str]]] = {"anabranch": own}
    if FAUST:
        makers["faust"] = fausts
    found: dict[str, list[Rates]] = {name: [] for name in makers}
    with working("counting by key") as status, running("anabranch") as peer, tempfile.TemporaryDirectory() as place:
        fill(peer.bootstrap, records)
        for number in range(rounds):
            for name, maker in makers.items():
                status.update(f"counting by key: round {number + 1}, {name}")
                application = f"{name}-{number}"
                found[name].append(run(maker(application, peer.bootstrap, Path(place) / application), records))
    middle = {name: median(row[1] for row in rows) for name, rows in found.items()}
    table(
        f"{records:,} records counted by {KEYS:,} keys, medians of {rounds} rounds in turn",
        *("", "records / processor s", "from", "to", "records/s"),
        rows=[
            (
                name,
                f"{middle[name]:,.0f}",
                *(f"{pick(row[1] for row in rows):,.0f}" for pick in (min, max)),
                f"{median(row[0] for row in rows):,.0f}",
            )
            for name, rows in found.items()
        ],
        note="" if FAUST else "not measured: Faust (ANABRANCH_FAUST is not set)",
    )
    faust = middle.get("faust")
    return [
        Figure(
            "Streams' count per key, records for each second of processor time",
            f"> {AIM_TIMES:g} x Faust's",
            f"{middle['anabranch']:,.0f}",
            "not here: Faust" if faust is None else f"Faust {faust:,.0f} ({times(middle['anabranch'], faust)})",
            None if faust is None else middle["anabranch"] > AIM_TIMES * faust,
        )
    ]


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(
        __doc__, measure, arguments, records=(RECORDS, "in the topic"), rounds=(ROUNDS, "measured rounds")
    )


if __name__ == "__main__":
    sys.exit(main())
