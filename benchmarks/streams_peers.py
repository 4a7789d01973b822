"""Streams beside Faust, Quix Streams and Kafka Streams: the same records, the same applications, the same two cores.

Each application (`benchmarks.stream_applications`) is one process with one thread of processing, on a cluster of three
brokers in another process. It first reads some records to warm up. It is then paused while the records that count are
stored, and measured from there until the last of its results is committed. So neither start nor rebalance count, and
the records come as fast as an application takes them. All commit at the same interval, and keep a changelog. Every
result is compared with what the input implies; a peer whose results differ has no figure.

A peer with a fast store in memory (Faust) uses it, the others have theirs on disk. Kafka Streams runs twice: with its
default cache, which leaves out changes of a key that another one follows before the next commit, and without it, so
that it sends each change as all others do.

    ANABRANCH_KAFKA_JARS=/folder/of/kafka-streams python -m benchmarks streams_peers [--records 200000] [--slow 40000]

Processor time of the application is comparable on a busy machine; records a second of wall time only on an idle one.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.peers import QUIET, Peer, running
from benchmarks.report import Figure, console, run_benchmark, table, times, working
from benchmarks.stream_applications.peers import (
    FAUST,
    GUARANTEES,
    JAVA,
    JAVA_WITHOUT_CACHE,
    OWN,
    QUIX,
    StreamsPeer,
    StreamsProcess,
    peers,
)
from benchmarks.stream_applications.truth import (
    COUNTS,
    JOIN,
    WINDOWS,
    JoinTruth,
    Output,
    Records,
    Truth,
    WrongOutput,
    truth_of,
)
from benchmarks.yardsticks import loop_ms

PARTITIONS: Final = 4
RECORDS: Final = 200_000
SLOW_RECORDS: Final = 40_000
KEYS: Final = 1_000
ROUNDS: Final = 1
COMMIT_MS: Final = 1_000
WARM_UP_SHARE: Final = 0.5
QUIET_S: Final = 120.0
"""How long an application may bring no result."""
PROBE_EVERY_S: Final = 3.0
WAIT_S: Final = 60.0
IDLE_LOAD: Final = 1.5
JAVA_AIM: Final = 3.0
SLOW: Final = (FAUST, QUIX)


@dataclass(frozen=True)
class Case:
    """What all peers run."""

    what: str
    kind: str
    keys: int
    records: int
    guarantee: str


@dataclass(frozen=True)
class Measured:
    """What one peer took for the records that count."""

    records: int
    wall_s: float
    processor_s: float
    cluster_s: float
    """The processor time of the brokers, meanwhile."""
    results: int
    """The results it has sent: fewer than records with a cache."""

    @property
    def per_s(self) -> float:
        """Records for each second of wall time."""
        return self.records / self.wall_s

    @property
    def per_million_s(self) -> float:
        """Seconds of the application's processor time for a million records."""
        return self.processor_s / self.records * 1e6


def create_topics(bootstrap: str, *names: str) -> None:
    """Create topics of one replica, and wait until they have leaders."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        created.result(WAIT_S)
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        found = [admin.list_topics(name, timeout=5).topics[name].partitions for name in names]
        if all(len(each) == PARTITIONS and all(one.leader > 0 for one in each.values()) for each in found):
            return
    raise TimeoutError(f"{', '.join(names)} got no leaders")


def follow(output: Output, truth: Truth, process: StreamsProcess, *, probing: Iterator[None] | None = None) -> int:
    """Read results until none is missing; returns their number. Raises WrongOutput if they are wrong or do not come."""
    read, heard_s, probed_s = 0, time.monotonic(), 0.0
    while truth.left or probing is not None:
        if probing is not None and time.monotonic() > probed_s + PROBE_EVERY_S:
            probed_s = time.monotonic()
            if next(probing, True):
                return read
        rows = output.read()
        for row in rows:
            truth.take(row.key(), row.value())
        read += len(rows)
        heard_s = time.monotonic() if rows else heard_s
        if process.has_ended:
            raise WrongOutput(f"{process.name} has ended: {process.log_tail()}")
        if time.monotonic() > heard_s + QUIET_S:
            missing = f"{truth.left} results are missing, and none came for {QUIET_S:g} s"
            raise WrongOutput(f"{process.name}: {missing}: {process.log_tail()}")
    return read


def probes(bootstrap: str, topic: str, records: Records, truth: JoinTruth, keys: int) -> Iterator[None]:
    """Send a record of each key until all of the rows are known to have been read."""
    while len(truth.probed) < keys:
        records.send_probes(bootstrap, topic)
        yield


@contextmanager
def started(peer: StreamsPeer, words: Sequence[str], directory: Path) -> Iterator[StreamsProcess]:
    """Run an instance while the block runs."""
    (directory / "state").mkdir(parents=True, exist_ok=True)
    process = StreamsProcess(peer, words, directory / "log")
    try:
        yield process
    finally:
        process.stop()


def run(peer: StreamsPeer, case: Case, cluster: Peer, directory: Path, name: str) -> Measured:
    """Run one case with one peer. Raises WrongOutput."""
    bootstrap = cluster.bootstrap
    source, rows, results = (f"{name}-{part}" for part in ("in", "rows", "out"))
    create_topics(bootstrap, source, rows, results)
    warm_up = range(int(case.records * WARM_UP_SHARE))
    counted = range(len(warm_up), len(warm_up) + case.records)
    records = Records(case.keys, counted.stop, int(time.time() * 1000) - 3_600_000)
    truth, output = truth_of(case.kind, records), Output(bootstrap, results, PARTITIONS)
    words = [case.kind, bootstrap, name, str(directory / "state"), case.guarantee, str(COMMIT_MS), "0"]
    words += [source, rows, results]
    if isinstance(truth, JoinTruth):
        records.send_table(bootstrap, rows)
    with started(peer, words, directory) as process:
        if isinstance(truth, JoinTruth):
            follow(output, truth, process, probing=probes(bootstrap, source, records, truth, case.keys))
        truth.expect(warm_up)
        records.send(bootstrap, source, warm_up)
        follow(output, truth, process)
        process.pause()
        truth.expect(counted)
        records.send(bootstrap, source, counted)
        begin = time.monotonic(), process.processor_s, sum(cluster.processor_s[:1])
        process.resume()
        read = follow(output, truth, process)
        end = time.monotonic(), process.processor_s, sum(cluster.processor_s[:1])
    output.close()
    wall_s, processor_s, cluster_s = (after - before for before, after in zip(begin, end, strict=True))
    return Measured(case.records, wall_s, processor_s, cluster_s, read)


def cases(records: int) -> list[Case]:
    """All cases, each with both guarantees."""
    kinds = {"counts per key": COUNTS, "windows of a minute": WINDOWS, "join with a table": JOIN}
    return [
        Case(f"{what}, {guarantee.replace('_', ' ')}", kind, KEYS, records, guarantee)
        for what, kind in kinds.items()
        for guarantee in GUARANTEES
    ]


def compare(case: Case, found: Sequence[StreamsPeer], cluster: Peer, slow: int, rounds: int) -> dict[str, Measured]:
    """Run one case with each peer in turn, `rounds` times; those whose results were right, with their median round."""
    measured: dict[str, list[Measured]] = {}
    for number, peer in itertools.product(range(rounds), found):
        records = min(slow, case.records) if peer.name in SLOW else case.records
        with working(f"{case.what}: {peer.name}"), tempfile.TemporaryDirectory(prefix="anabranch-streams-") as place:
            name = f"{case.kind}-{case.guarantee}-{peer.name.lower().replace(' ', '-').replace(',', '')}-{number}"
            try:
                one = run(peer, replace(case, records=records), cluster, Path(place), name)
            except WrongOutput as error:
                console.print(f"{case.what}: {error}", markup=False)
                measured[peer.name] = []
                continue
        measured.setdefault(peer.name, []).append(one)
    return {
        name: sorted(rows, key=lambda one: one.per_million_s)[len(rows) // 2]
        for name, rows in measured.items()
        if len(rows) == rounds
    }


def show(case: Case, found: dict[str, Measured], absent: Sequence[StreamsPeer]) -> None:
    """Print the table of one case."""
    own = found.get(OWN)
    missing = [f"not measured: {one.name} ({one.absent})" for one in absent]
    table(
        case.what,
        *("", "records", "records/s", "ours / it", "processor s", "it / ours", "cluster's", "results"),
        rows=[
            (
                name,
                f"{one.records:,}",
                f"{one.per_s:,.0f}",
                times(own.per_s, one.per_s) if own else "",
                f"{one.per_million_s:.1f}",
                times(one.per_million_s, own.per_million_s) if own else "",
                f"{one.cluster_s / one.records * 1e6:.1f}",
                f"{one.results:,}",
            )
            for name, one in found.items()
        ],
        note="; ".join(["processor seconds for a million records: of the application, of the cluster", *missing]),
    )


def figures_of(case: Case, found: dict[str, Measured]) -> list[Figure]:
    """The aims of one case: cheaper than both Python peers, and at most so many times as much as Kafka Streams."""
    own = found.get(OWN)
    if own is None:
        return [Figure(case.what, "right results", "wrong results", "", False)]
    figures = []
    for name, aim in ((FAUST, 1.0), (QUIX, 1.0), (JAVA, JAVA_AIM), (JAVA_WITHOUT_CACHE, JAVA_AIM)):
        if peer := found.get(name):
            ratio = own.per_million_s / peer.per_million_s
            figures.append(
                Figure(
                    f"{case.what}, processor time for a million records",
                    f"<= {aim:g} x {name}",
                    f"{own.per_million_s:.1f} s, {ratio:.2f}x",
                    f"{name}: {peer.per_million_s:.1f} s",
                    ratio <= aim,
                )
            )
    return figures


def measure(records: int = RECORDS, slow: int = SLOW_RECORDS, rounds: int = ROUNDS) -> list[Figure]:
    everyone = peers()
    able, absent = [one for one in everyone if not one.absent], [one for one in everyone if one.absent]
    load = os.getloadavg()[0]
    console.print(f"load {load:.1f}, {os.cpu_count()} cores; a loop of a million additions: {loop_ms():.1f} ms")
    if load > IDLE_LOAD:
        console.print("other programs use the cores: compare processor time only", style="yellow")
    figures = []
    with running("anabranch") as cluster:
        for case in cases(records):
            found = compare(case, able, cluster, slow, rounds)
            show(case, found, absent)
            figures += figures_of(case, found)
    return figures


def main(arguments: list[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        measure,
        arguments,
        records=(RECORDS, "that count"),
        slow=(SLOW_RECORDS, "for the peers in Python, which are slow: the first ones of the same records"),
        rounds=(ROUNDS, "of each case, in turn; the median counts"),
    )


if __name__ == "__main__":
    sys.exit(main())
