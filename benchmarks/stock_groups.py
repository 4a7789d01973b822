"""Stock consumers and stock producers on a topic that grows a hundred times: ten million records, and their order.

All clients are librdkafka, each in its own process. Producers send like `examples/stock_producer.py`, on a topic with
`reshard.legacy.producers=verify`. The topic grows by one partition whenever another share of the records is stored, by
CreatePartitions of librdkafka's admin client. Group members log each record before its offset may be committed; some
members are killed and replaced. `anabranch audit --deliveries` compares the logs with the producers' acknowledgements.
Stock groups keep order only when a topic grows, so it never shrinks here. The control runs without the coordinator's
gates, and must violate the order.

    python -m benchmarks.stock_groups [--records 10000000] [--resizes 100] [--protocol classic|consumer]
    python -m benchmarks.stock_groups --records 500000 --late --ignore    # the control
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from anabranch.testing.clusters import Clusters
from benchmarks.peers import QUIET
from benchmarks.report import Figure, console, summary, working
from examples.stock_producer import ResizedTopic

TOPIC: Final = "records"
GROUP: Final = "readers"
FIRST_COUNT: Final = 4
WRITERS: Final = 2
READERS: Final = 3
KEYS: Final = 2000
"""Keys per writer. One record per key is in flight at a time, so the keys form the batches."""
LAG_MAX: Final = 50_000
"""How far readers may lag before the writers wait."""
TIMEOUT_S: Final = 60.0
TELL_EVERY_S: Final = 5.0
KAFKA: Final = "4.1"
PROPERTIES: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "3000",
}
CLASSIC: Final = {
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 300,
}
PROTOCOLS: Final[dict[str, dict[str, Any]]] = {"classic": CLASSIC, "consumer": {"group.protocol": "consumer"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The parameters of a run."""

    records: int = 10_000_000
    resizes: int = 100
    kills: int = 10
    protocol: str = "classic"
    gates: bool = True
    """Whether the coordinator holds the group's gates. Without gates, the audit must report violations."""
    late: bool = False
    """Whether members start after everything is stored."""


@dataclass
class Run:
    """One run: its processes, counts and files."""

    course: Course
    servers: str
    folder: Path
    context: Any = field(default_factory=lambda: multiprocessing.get_context("spawn"))
    writers: list[Any] = field(default_factory=list)
    readers: list[Any] = field(default_factory=list)
    grown: int = 0
    killed: int = 0
    elapsed_s: float = 0.0

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.servers, **QUIET})
        self.stored = [self.context.Value("q", 0) for _ in range(WRITERS)]
        self.allowed = self.context.Value("q", 0)
        """How many records each writer may have sent by now."""
        self.handed: list[Any] = []
        """A count for each reader: a killed reader would keep the lock of a shared count."""
        self.ending = self.context.Event()
        self.reported_s = time.monotonic()
        self.numbers = itertools.count()

    @property
    def total(self) -> int:
        """The number of stored records."""
        return sum(one.value for one in self.stored)

    @property
    def handed_out(self) -> int:
        """The number of delivered records, including those of killed readers."""
        return sum(one.value for one in self.handed)

    def go(self) -> None:
        """Run from an empty topic to the commit of all stored records."""
        self._create()
        per_writer = self.course.records // WRITERS
        for number in range(WRITERS):
            sent = self.folder / f"sent-{number}.jsonl"
            words = (self.servers, f"w{number}", per_writer, sent, self.stored[number], self.allowed)
            self.writers.append(self._start(write, *words))
        if not self.course.late:
            self._fill_up()
        try:
            self._until_stored()
            self._fill_up()
            self._until_committed()
        finally:
            self.ending.set()
            for process in (*self.writers, *self.readers):
                process.join(TIMEOUT_S)
                process.kill()

    def _create(self) -> None:
        config = {"reshard.legacy.producers": "verify"}
        if not self.course.gates:
            config["reshard.legacy.consumers"] = "ignore"
        (created,) = self.admin.create_topics([NewTopic(TOPIC, FIRST_COUNT, 3, config=config)]).values()
        created.result(TIMEOUT_S)

    def _start(self, target: Any, *words: Any) -> Any:
        process = self.context.Process(target=target, args=words, daemon=True)
        process.start()
        return process

    def _fill_up(self) -> None:
        """Start the missing members."""
        self.readers = [one for one in self.readers if one.is_alive()]
        while len(self.readers) < READERS:
            words = (self.servers, self.course.protocol, f"r{next(self.numbers)}", self.folder / "handed.jsonl")
            self.handed.append(self.context.Value("q", 0, lock=False))
            self.readers.append(self._start(read, *words, self.handed[-1], self.ending))

    def _until_stored(self) -> None:
        """Let writers send as readers follow; grow the topic and kill members as shares are stored."""
        course = self.course
        while (stored := self.total) < course.records // WRITERS * WRITERS:
            lag_max = course.records if course.late else LAG_MAX
            due = min(self.handed_out + lag_max, course.records * (self.grown + 1.5) / (course.resizes + 1))
            self.allowed.value = int(due) // WRITERS + 1
            if self.grown < course.resizes and stored >= course.records * (self.grown + 0.5) / (course.resizes + 1):
                self._grow()
            if (
                self.readers
                and self.killed < course.kills
                and stored >= course.records * (self.killed + 0.7) / (course.kills + 1)
            ):
                self.readers[0].kill()
                self.readers[0].join(TIMEOUT_S)
                self.killed += 1
                self._fill_up()
            for process in self.writers:
                if process.exitcode:
                    raise RuntimeError(f"a writer has ended with {process.exitcode}")
            self._tell(stored)
            time.sleep(0.02)

    def _tell(self, stored: int) -> None:
        if time.monotonic() - self.reported_s < TELL_EVERY_S:
            return
        self.reported_s = time.monotonic()
        console.print(
            f"{stored:>11,} stored {self.handed_out:>11,} handed out {FIRST_COUNT + self.grown:>4} partitions"
            f" {self.killed:>3} members killed"
        )

    def _grow(self) -> None:
        (grown,) = self.admin.create_partitions([NewPartitions(TOPIC, FIRST_COUNT + self.grown + 1)]).values()
        grown.result(TIMEOUT_S)
        self.grown += 1

    def _until_committed(self) -> None:
        """Wait until the group has committed every partition's end. TimeoutError without progress."""
        places = [TopicPartition(TOPIC, index) for index in range(FIRST_COUNT + self.grown)]
        found = self.admin.list_offsets({one: OffsetSpec.latest() for one in places})  # type: ignore[no-untyped-call]
        ends = {place.partition: one.result(TIMEOUT_S).offset for place, one in found.items()}
        seen, moved_s = -1, time.monotonic()
        while True:
            requested = [ConsumerGroupTopicPartitions(GROUP, places)]
            (answer,) = self.admin.list_consumer_group_offsets(requested).values()
            committed = {one.partition: max(one.offset, 0) for one in answer.result(TIMEOUT_S).topic_partitions}
            if committed == ends:
                return
            if (so_far := sum(committed.values())) > seen:
                seen, moved_s = so_far, time.monotonic()
            if time.monotonic() - moved_s > TIMEOUT_S:
                missing = {index: (committed[index], end) for index, end in ends.items() if committed[index] != end}
                raise TimeoutError(f"nothing was committed for {TIMEOUT_S:g} s; partitions behind: {missing}")
            self._tell(self.total)
            time.sleep(0.2)


def line(key: str, sequence: int, partition: int, offset: int, member: str) -> str:
    """The line of a record for `anabranch audit --deliveries`."""
    place = f'"sequence":{sequence},"partition":{partition},"offset":{offset}'
    return f'{{"key":"{key}",{place},"member":"{member}"}}\n'


class Noting(ResizedTopic):
    """A stock producer that logs its acknowledged records."""

    def __init__(self, servers: str, name: str, file: Path, stored: Any) -> None:
        super().__init__(servers, TOPIC, **QUIET, **{"linger.ms": 10})
        self.name, self.lines, self.stored = name, file.open("w"), stored

    def on_delivery(self, error: Any, message: Any) -> None:
        """Handle the acknowledgement of a key's oldest record."""
        if error is None:
            place = message.partition(), message.offset()
            self.lines.write(line(message.key().decode(), int(message.value()), *place, self.name))
            self.stored.value += 1
        super().on_delivery(error, message)


def write(servers: str, name: str, count: int, file: Path, stored: Any, allowed: Any) -> None:
    """Send `count` records in rounds: one of each key, the next ones when all are stored."""
    producer = Noting(servers, name, file, stored)
    keys = [f"{name}-{number}".encode() for number in range(KEYS)]
    sent = 0
    for sequence in itertools.count():
        value = b"%d" % sequence
        for key in keys[: count - sent]:
            producer.send(key, value)
            sent += 1
            while sent > allowed.value:
                producer.poll(0.02)
        producer.flush()
        if sent == count:
            break
    producer.lines.close()


def read(servers: str, protocol: str, name: str, file: Path, handed: Any, ending: Any) -> None:
    """Run one member: log each record, then allow its offset to be committed."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
        "auto.commit.interval.ms": 200,
        "topic.metadata.refresh.interval.ms": 1000,
        "fetch.wait.max.ms": 100,
        **QUIET,
        **PROTOCOLS[protocol],
    }
    consumer = Consumer(settings)
    consumer.subscribe([TOPIC])
    lines = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    while not ending.is_set():
        records: list[Any] = [one for one in consumer.consume(1000, timeout=0.1) if one.error() is None]
        if not records:
            continue
        log_lines = [line(one.key().decode(), int(one.value()), one.partition(), one.offset(), name) for one in records]
        text = "".join(log_lines).encode()
        if os.write(lines, text) != len(text):
            raise OSError(f"{file}: a write was cut short")
        for record in {one.partition(): one for one in records}.values():
            try:
                consumer.store_offsets(record)
            except KafkaException:
                continue  # the partition was revoked; its new owner reads this record again
        handed.value += len(records)
    consumer.close()


def audit(folder: Path) -> int:
    """Audit the lines: 0 for no violations, 1 for violations."""
    words = ["--deliveries", str(folder / "handed.jsonl"), "--out", str(folder / "audited")]
    for file in sorted(folder.glob("sent-*.jsonl")):
        words += ["--sent", str(file)]
    code = subprocess.run([sys.executable, "-m", "anabranch.cli.main", "audit", *words]).returncode
    if not list(folder.glob("audited/**/report.html")):
        raise RuntimeError(f"the audit ended with {code} before it had judged")
    return code


def play(course: Course, folder: Path) -> Run:
    """Run once against a cluster of three brokers in its own process; the results are files in the folder."""
    with Clusters() as clusters, clusters.running(brokers=3, kafka=KAFKA, properties=PROPERTIES) as cluster:
        run = Run(course, cluster.bootstrap_servers, folder)
        started_s = time.monotonic()
        run.go()
        run.elapsed_s = time.monotonic() - started_s
    return run


def judge(run: Run) -> Figure:
    """One line of the summary, by the audit's verdict."""
    course = run.course
    console.print(f"{run.total:,} records, {run.grown} resizes, {run.killed} members killed: {run.elapsed_s:,.0f} s")
    verdict = audit(run.folder)
    found = "violations" if verdict else "nothing wrong"
    return Figure(
        f"{course.protocol} stock group, {course.resizes} resizes{'' if course.gates else ', gates off'}",
        "nothing wrong" if course.gates else "violations",
        f"{run.total:,} records in {run.elapsed_s:,.0f} s: {found}",
        "",
        verdict == (0 if course.gates else 1),
    )


def measure(records: int = 200_000, resizes: int = 10) -> list[Figure]:
    courses = [Course(records=records, resizes=resizes, kills=2, protocol=one) for one in PROTOCOLS]
    courses.append(Course(records=records, resizes=resizes, kills=0, gates=False, late=True))
    figures = []
    for course in courses:
        with working(f"{course}"), tempfile.TemporaryDirectory(prefix="anabranch-stock-") as folder:
            figures.append(judge(play(course, Path(folder))))
    return figures


def main(arguments: list[str] | None = None) -> int:
    """Run once. Returns 1 if the audit's verdict is not the expected one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stock_groups", description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--resizes", type=int, default=100)
    parser.add_argument("--kills", type=int, default=10, help="members killed and replaced on the way")
    parser.add_argument("--protocol", choices=sorted(PROTOCOLS), default="classic")
    parser.add_argument("--late", action="store_true", help="members begin when everything is stored")
    parser.add_argument("--ignore", action="store_true", help="the control: the coordinator holds no gates")
    parser.add_argument("--out", type=Path, help="a directory for the lines and the audit's report; else they go")
    options = parser.parse_args(arguments)
    course = Course(
        records=options.records,
        resizes=options.resizes,
        kills=options.kills,
        protocol=options.protocol,
        gates=not options.ignore,
        late=options.late,
    )
    with tempfile.TemporaryDirectory(prefix="anabranch-stock-") as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        result = judge(play(course, folder))
    summary([result])
    return 0 if result.met else 1


if __name__ == "__main__":
    sys.exit(main())
