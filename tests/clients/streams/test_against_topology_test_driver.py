"""Random topologies under `TopologyTestDriver` and under Kafka Streams' class of that name: both send the same records.

A topology is a list of steps on named streams, made from a seed; the input is made from it, too. Values are numbers as
text, so that both sides can compute with them. Kafka Streams runs without its record cache, which leaves out changes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from anabranch.clients.streams.global_table import GlobalTable
from anabranch.clients.streams.serdes import TEXT
from anabranch.clients.streams.stream import Stream, Table
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_test_driver import TopologyTestDriver
from anabranch.clients.streams.windowed_aggregation import Emit
from anabranch.clients.streams.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, Windows
from tests.clients.streams.oracle import ask, driver_jars_or_skip

pytestmark = pytest.mark.kafka_jars

TOPOLOGIES: Final = int(os.environ.get("ANABRANCH_TOPOLOGIES", "300"))
FOREIGN: Final = TOPOLOGIES // 3
RECORDS: Final = 40
AGGREGATIONS: Final = ("count", "sum", "reduce", "cogroup")
TABLES: Final = ("sum", "reduce", "cogroup", "join_table")
"""What makes a table."""
WINDOWED: Final = (
    *("window_count", "window_reduce", "sliding_count", "sliding_reduce", "session_count", "session_sum"),
    "window_cogroup",
    *["join_within"] * 4,
)
JOINS_WITHIN_MAX: Final = 2
"""Each one multiplies the records."""
NEVER_LATE_MS: Final = 10_000
"""The grace period of cogrouped windows: in Kafka each stream has a stream time of its own, and other late records."""
Step = dict[str, Any]


class Program:
    """A random topology: its steps, in the order in which they are declared."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.steps: list[Step] = []
        self.streams: dict[str, bool] = {}
        """Each stream, and whether its keys may belong to other tasks."""
        self._names = iter(range(1000))
        for topic in ("in", "also")[: self.rng.randint(1, 2)]:
            self.add("source", topic=topic)
        self.tables = ["rows", "more"]
        for topic in self.tables:
            self.step("table", topic=topic, out=topic)
        self.step("global_table", topic="everywhere", out="everywhere")
        for _ in range(self.rng.randint(1, 7)):
            before = [*self.steps], dict(self.streams), [*self.tables]
            self.grow()
            if self.is_ambiguous():
                self.steps, self.streams, self.tables = before
        for stream in self.streams:
            self.step("to", of=stream, topic=f"out-{stream}")

    def step(self, op: str, **arguments: Any) -> None:
        self.steps.append({"op": op, **arguments})

    def add(self, op: str, *, strays: bool = False, **arguments: Any) -> str:
        """A step with one stream as its result."""
        out = f"s{next(self._names)}"
        self.step(op, out=out, **arguments)
        if op in TABLES:
            self.tables.append(out)
            self.step("changes", of=out, out=out)
        self.streams[out] = strays
        return out

    def is_ambiguous(self) -> bool:
        """Whether a task reads two internal topics: Kafka's queue decides which record of a timestamp is the first."""
        parts = declared(self.steps).build("app").subtopologies
        return any(sum(topic.endswith("-repartition") for topic in part.sources) > 1 for part in parts)

    def at_home(self, of: str) -> str:
        """The stream with its records in the tasks of their keys."""
        return self.add("repartition", of=of, name=f"r{next(self._names)}") if self.streams[of] else of

    def grow(self) -> None:
        """One more step, behind any stream."""
        rng = self.rng
        of = rng.choice(list(self.streams))
        strays = self.streams[of]
        op = rng.choice(
            ["filter", "map_values", "flat_map_values", "select_key", "repartition", "peek", "merge", "split"]
            + [*AGGREGATIONS, "join", "join_table", "join_global"] * 2
            + [*WINDOWED]
        )
        match op:
            case "select_key":
                self.add(op, of=of, n=rng.randint(1, 3), strays=True)
            case "repartition":
                self.add(op, of=of, name=f"r{next(self._names)}")
            case "merge":
                other = rng.choice(list(self.streams))
                if other != of:
                    self.add(op, of=of, **{"with": other}, strays=strays or self.streams[other])
            case "split":
                out = f"s{next(self._names)}"
                self.step(op, of=of, out=out, n=rng.randint(2, 4))
                ways = [f"{out}-{way}" for way in range(3)]
                self.streams |= dict.fromkeys(ways, strays)
            case "count" | "sum" | "reduce":
                self.add(op, of=self.at_home(of), store=f"store-{next(self._names)}")
            case "cogroup":
                self.cogroup(op, of)
            case "window_cogroup":
                kind, size = rng.choice(["time", "sliding", "session"]), rng.randint(1, 60)
                self.cogroup(op, of, kind=kind, size=size, grace=NEVER_LATE_MS, strays=True)
            case "window_count" | "window_reduce":
                size = rng.randint(1, 60)
                advance = rng.choice([0, rng.randint(1, size)])
                self.windowed(op, of, size=size, advance=advance)
            case "sliding_count" | "sliding_reduce":
                self.windowed(op, of, size=rng.choice([rng.randint(1, 60), rng.randint(60, 300)]))
            case "session_count" | "session_sum":
                self.windowed(op, of, size=rng.randint(1, 30))
            case "join_within":
                self.join_within(of)
            case "join":
                self.add(op, of=self.at_home(of), **{"with": rng.choice(self.tables)}, left=rng.random() < 0.5)
            case "join_global":
                self.add(op, of=of, left=rng.random() < 0.5, n=rng.randrange(4), strays=strays)
            case "join_table":
                one, other = rng.sample(self.tables, 2)
                store, kind = f"store-{next(self._names)}", rng.choice(["inner", "left", "outer"])
                self.add(op, of=one, **{"with": other}, store=store, kind=kind)
            case _:
                self.add(op, of=of, n=rng.randint(2, 4), strays=strays)

    def windowed(self, op: str, of: str, **arguments: int) -> None:
        """A windowed aggregation: its keys are text, so that both sides write them alike."""
        store, grace, closes = f"store-{next(self._names)}", self.rng.choice([0, 7, 50]), self.rng.random() < 0.5
        self.add(op, of=self.at_home(of), store=store, grace=grace, closes=closes, strays=True, **arguments)

    def cogroup(self, op: str, of: str, **arguments: Any) -> None:
        """An aggregate of two streams, or of one twice."""
        home, other = self.at_home(of), self.rng.choice(list(self.streams))
        beside = home if other == of else self.at_home(other)
        self.add(op, of=home, **{"with": beside}, store=f"store-{next(self._names)}", **arguments)

    def join_within(self, of: str) -> None:
        """A join of two streams, or of one with itself."""
        rng = self.rng
        other = rng.choice(list(self.streams))
        if sum(step["op"] == "join_within" for step in self.steps) == JOINS_WITHIN_MAX:
            return
        before, grace = rng.choice([0, rng.randint(0, 40), 20, -10]), rng.choice([0, 0, rng.randint(1, 60)])
        after = rng.choice([0, rng.randint(0, 40), 20]) if before >= 0 else rng.randint(-before, 40)
        if before and rng.random() < 0.3:
            before, after = after, before
        home = self.at_home(of)
        self.add(
            "join_within",
            of=home,
            **{"with": home if other == of else self.at_home(other)},
            store=f"store-{next(self._names)}",
            kind=rng.choice(["inner", "left", "outer"]),
            before=before,
            after=after,
            grace=grace if before + after + grace else 1,
        )

    def records(self) -> list[tuple[str, str | None, str | None, int]]:
        """Input for it, with some late timestamps, records without key and deletions."""
        rng = self.rng
        topics = [step["topic"] for step in self.steps if step["op"] in ("source", "table", "global_table")]
        return [
            (
                rng.choice(topics),
                None if rng.random() < 0.05 else f"k{rng.randrange(3)}",
                None if rng.random() < 0.1 else str(rng.randrange(20)),
                10 * number + rng.choice([0, 0, 3, -25, 40]) + 100,
            )
            for number in range(RECORDS)
        ]


class ForeignProgram:
    """Joins of tables by foreign keys, whose sides have no input in common: how changes of one record that come to a
    join by both sides are interleaved is decided by Kafka's queue.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.steps: list[Step] = [{"op": "source", "topic": "in", "out": "in"}]
        self.inputs: dict[str, set[str]] = {}
        """The topics that each table is made of."""
        for topic in ("rows", "more", "others"):
            self.table({topic}, op="table", topic=topic, out=topic)
        self.table({"in"}, op="reduce", of="in", store="highest", out="highest")
        for number in range(rng.randint(1, 3)):
            self.join(f"joined-{number}")

    def table(self, inputs: set[str], **step: Any) -> None:
        """A table, whose changes are sent."""
        out = step["out"]
        self.inputs[out] = inputs
        changes = {"op": "changes", "of": out, "out": f"changes-{out}"}
        self.steps += [step, changes, {"op": "to", "of": changes["out"], "topic": f"out-{out}"}]

    def join(self, out: str) -> None:
        """A join of two tables, most often by a foreign key; or of a stream with a table."""
        rng = self.rng
        of = rng.choice(list(self.inputs))
        apart = [name for name, inputs in self.inputs.items() if not inputs & self.inputs[of]]
        if not apart:
            return
        other = rng.choice(apart)
        op = rng.choice(["join_foreign"] * 4 + ["join_table"])
        step = {"op": op, "of": of, "with": other, "store": out, "kind": rng.choice(["inner", "left"])}
        self.table(self.inputs[of] | self.inputs[other], **step, n=rng.randrange(4), out=out)
        if "in" not in self.inputs[out]:
            self.steps += [
                {"op": "join", "of": "in", "with": out, "left": rng.random() < 0.5, "out": f"met-{out}"},
                {"op": "to", "of": f"met-{out}", "topic": f"out-met-{out}"},
            ]

    def records(self) -> list[tuple[str, str | None, str | None, int]]:
        """Input for it, with some late timestamps, records without key and deletions."""
        rng = self.rng
        return [
            (
                rng.choice(["in", "rows", "more", "others"]),
                None if rng.random() < 0.05 else f"k{rng.randrange(3)}",
                None if rng.random() < 0.2 else str(rng.randrange(20)),
                10 * number + rng.choice([0, 0, 3, -25, 40]) + 100,
            )
            for number in range(2 * RECORDS)
        ]


def declared(steps: list[Step]) -> Topology:
    """The same steps, with this package."""
    topology = Topology()
    streams: dict[str, Stream] = {}
    tables: dict[str, Table] = {}
    everywhere: GlobalTable | None = None
    for step in steps:
        out, of, n = step.get("out", ""), streams.get(step.get("of", "")), step.get("n", 0)
        match step["op"]:
            case "source":
                streams[out] = topology.stream(step["topic"], value=TEXT)
            case "table":
                tables[out] = topology.table(step["topic"], value=TEXT)
            case "global_table":
                everywhere = topology.global_table(step["topic"], value=TEXT)
            case "join_global":
                assert of is not None and everywhere is not None
                streams[out] = of.join_global(everywhere, row_key(n), joined, left=step["left"])
            case "split":
                assert of is not None
                ways = of.split(leaves(n, 0), leaves(n, 1))
                streams |= {f"{out}-{way}": stream for way, stream in enumerate(ways)}
            case "to":
                assert of is not None
                of.to(step["topic"], value=TEXT)
            case "join_table":
                tables[out] = joined_tables(tables[step["of"]], tables[step["with"]], step)
            case "join_foreign":
                tables[out] = tables[step["of"]].join_foreign(
                    tables[step["with"]],
                    row_key(n),
                    paired,
                    store=step["store"],
                    left=step["kind"] == "left",
                    value=TEXT,
                )
            case "changes":
                # A step of its own, as toStream is: what follows gets a change before the joins of the table do.
                streams[out] = tables[step["of"]].peek(lambda key, value: None)
            case _:
                assert of is not None
                made = behind(of, step, streams, tables)
                if step["op"] in TABLES:
                    assert isinstance(made, Table)
                    tables[out] = made
                streams[out] = made
    return topology


def joined_tables(of: Table, other: Table, step: Step) -> Table:
    left, outer = step["kind"] == "left", step["kind"] == "outer"
    return of.join_table(other, paired, store=step["store"], left=left, outer=outer, value=TEXT)


def row_key(n: int) -> Callable[[Any, str | None], bytes | None]:
    """The key of a row, by the value of a record; none for a quarter of them."""
    return lambda key, value: None if value is None or int(value) % 4 == n else b"k%d" % (int(value) % 3)


def leaves(n: int, rest: int) -> Callable[[bytes | None, str | None], bool]:
    return lambda key, value: value is not None and int(value) % n == rest


def behind(of: Stream, step: Step, streams: dict[str, Stream], tables: dict[str, Table]) -> Stream:
    n = step.get("n", 0)
    match step["op"]:
        case "filter":
            return of.filter(lambda key, value: value is None or int(value) % n != 0)
        case "map_values":
            return of.map_values(lambda value: None if value is None else str(int(value) + n))
        case "flat_map_values":
            return of.flat_map_values(lambda value: [] if value is None else [value, str(int(value) + n)])
        case "select_key":
            return of.select_key(lambda key, value: key if value is None else b"m%d" % (int(value) % n))
        case "repartition":
            return of.repartition(step["name"], value=TEXT)
        case "peek":
            return of.peek(lambda key, value: None)
        case "merge":
            return of.merge(streams[step["with"]])
        case "count":
            return of.count(step["store"]).map_values(str)
        case "sum":
            return of.aggregate(step["store"], lambda: "0", summed, value=TEXT)
        case "cogroup":
            both = of.cogroup(summed).cogroup(streams[step["with"]], lambda key, value, sum: tripled(sum, value))
            return both.aggregate(step["store"], lambda: "0", value=TEXT)
        case "window_cogroup":
            return cogrouped(of, streams[step["with"]], step).map(lambda window, value: (b"%s@%d-%d" % window, value))
        case "reduce":
            return of.reduce(step["store"], lambda one, other: str(max(int(one), int(other))), value=TEXT)
        case op if op.startswith(("window_", "sliding_", "session_")):
            return windowed(of, step).map(lambda window, value: (b"%s@%d-%d" % window, value))
        case "join_within":
            return of.join_within(
                streams[step["with"]],
                JoinWindows(step["before"], step["after"], step["grace"]),
                paired,
                store=step["store"],
                left=step["kind"] == "left",
                outer=step["kind"] == "outer",
                value=TEXT,
                other_value=TEXT,
            )
        case "join":
            return of.join(tables[step["with"]], joined, left=step["left"])
        case other:
            raise ValueError(other)


def windowed(of: Stream, step: Step) -> Stream:
    emit = Emit.ON_WINDOW_CLOSE if step["closes"] else Emit.ON_WINDOW_UPDATE
    windows: Windows
    if step["op"].startswith("window"):
        windows = TimeWindows(step["size"], step["advance"], step["grace"])
    elif step["op"].startswith("sliding"):
        windows = SlidingWindows(step["size"], step["grace"])
    else:
        windows = SessionWindows(step["size"], step["grace"])
    records = of.windowed_by(windows, emit=emit)
    match step["op"]:
        case "window_reduce" | "sliding_reduce":
            return records.reduce(
                step["store"], lambda one, other: one if other is None else (one + other)[-15:], value=TEXT
            )
        case "session_sum":
            return records.aggregate(
                step["store"], lambda: "0", lambda key, value, total: added(total, value), merge=merged, value=TEXT
            )
        case _:
            return records.count(step["store"]).map_values(lambda count: None if count is None else str(count))


def cogrouped(of: Stream, other: Stream, step: Step) -> Stream:
    kinds = {"time": TimeWindows, "sliding": SlidingWindows, "session": SessionWindows}
    windows = kinds[step["kind"]](step["size"], grace_ms=step["grace"])
    both = of.cogroup(lambda key, value, text: (text + (value or "9"))[-15:]).cogroup(
        other, lambda key, value, text: ((value or "8") + text)[-15:]
    )
    merge = (lambda key, one, other: (one + other)[-15:]) if step["kind"] == "session" else None
    return both.windowed_by(windows).aggregate(step["store"], str, merge=merge, value=TEXT)


def tripled(total: str, value: str) -> str | None:
    after = (3 * int(total) + int(value)) % 1000
    return None if after % 7 == 0 else str(after)


def added(total: str, value: str | None) -> str:
    return str(int(total) + int(value or 0))


def merged(key: bytes, one: str, other: str) -> str:
    return added(one, other)


def summed(key: bytes, value: str, total: str) -> str | None:
    """Add a value; a multiple of 7 deletes the key."""
    after = int(total) + int(value)
    return None if after % 7 == 0 else str(after)


def joined(value: str | None, row: str | None) -> str:
    return str(int(value or 0) * 1000 + int(row or 0))


def paired(value: str | None, other: str | None) -> str:
    one, two = 3 if value is None else 7 + int(value), 5 if other is None else 11 + int(other)
    return str((one * 1009 + two) % 1000003)


def sent(steps: list[Step], records: list[tuple[str, str | None, str | None, int]]) -> dict[str, list[list[Any]]]:
    with TopologyTestDriver(declared(steps), application_id="app") as driver:
        for topic, key, value, timestamp_ms in records:
            driver.pipe(topic, key, value, timestamp_ms=timestamp_ms)
        sinks = [step["topic"] for step in steps if step["op"] == "to"]
        return {
            topic: [
                [None if row.key is None else row.key.decode(), row.value, row.timestamp_ms]
                for row in driver.read(topic, value=TEXT)
            ]
            for topic in sinks
        }


@pytest.fixture(scope="module")
def jars() -> Path:
    return driver_jars_or_skip()


def test_random_topologies_send_what_they_send_in_kafka_streams(jars: Path) -> None:
    programs = [Program(seed) for seed in range(TOPOLOGIES)]
    questions: list[dict[str, Any]] = [{"steps": one.steps, "records": one.records()} for one in programs]
    theirs = ask(jars, "run", questions, program="StreamsRuns.java")
    assert len(theirs) == len(questions)
    for seed, (program, question, answer) in enumerate(zip(programs, questions, theirs, strict=True)):
        ours = sent(program.steps, question["records"])
        for topic, rows in answer.items():
            assert ours[topic] == rows, f"seed {seed}, {topic}: {program.steps}"


def by_key(rows: list[list[Any]]) -> dict[str | None, list[list[Any]]]:
    """The rows of each key: a row of one table may change those of many, and Kafka's queue decides their order."""
    return {key: [row for row in rows if row[0] == key] for key in {row[0] for row in rows}}


def test_random_joins_by_foreign_keys_send_what_they_send_in_kafka_streams(jars: Path) -> None:
    programs = [ForeignProgram(seed) for seed in range(FOREIGN)]
    questions: list[dict[str, Any]] = [{"steps": one.steps, "records": one.records()} for one in programs]
    theirs = ask(jars, "run", questions, program="StreamsRuns.java")
    assert len(theirs) == len(questions)
    results = 0
    for seed, (program, question, answer) in enumerate(zip(programs, questions, theirs, strict=True)):
        ours = sent(program.steps, question["records"])
        for topic, rows in answer.items():
            assert by_key(ours[topic]) == by_key(rows), f"seed {seed}, {topic}: {program.steps}"
        results += sum(len(rows) for topic, rows in answer.items() if topic.startswith("out-joined"))
    assert results > FOREIGN
