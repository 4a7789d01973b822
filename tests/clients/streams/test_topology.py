"""Each step's effect on records, without tasks."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.clients.streams.context import Context, Handler
from anabranch.clients.streams.serdes import JSON, TEXT
from anabranch.clients.streams.topology import Topology
from anabranch.protocol.records.record import Headers


class Bench:
    """A task's place: dicts for stores, a list for what is sent."""

    def __init__(self) -> None:
        self.timestamp_ms = 7
        self.headers: Headers = ()
        self.stores: dict[str, Rows] = {}
        self.sent: list[tuple[str, bytes | None, bytes | None]] = []

    def store(self, name: str) -> Rows:
        return self.stores.setdefault(name, Rows())

    timestamped = store

    def emit(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        self.sent.append((topic, key, value))


class Rows(dict[bytes, bytes]):
    def get_timestamped(self, key: bytes) -> tuple[bytes, int] | None:
        return (self[key], -1) if key in self else None

    def put(self, key: bytes, value: bytes | None, timestamp_ms: int = -1) -> None:
        if value is None:
            self.pop(key, None)
        else:
            self[key] = value


def run(topology: Topology, *records: tuple[str, bytes | None, bytes | None]) -> Bench:
    bench = Bench()
    steps = {topic: step for part in topology.build("app").subtopologies for topic, step in part.bind(bench).items()}
    for topic, key, value in records:
        steps[topic](key, value)
    return bench


def test_steps_change_drop_and_multiply_records() -> None:
    topology = Topology()
    lines = topology.stream("lines", value=TEXT)
    lines.filter(lambda key, line: "keep" in line).map_values(str.upper).to("upper", value=TEXT)
    lines.flat_map(lambda key, line: [(word.encode(), len(word)) for word in line.split()]).to("words")
    bench = run(topology, ("lines", None, b"keep me"), ("lines", None, b"no"))
    assert bench.sent == [
        ("upper", None, b"KEEP ME"),
        ("words", b"keep", b"4"),
        ("words", b"me", b"2"),
        ("words", b"no", b"2"),
    ]


def test_aggregate_is_stored_forwarded_and_deleted_by_none() -> None:
    def add(key: bytes, value: bytes, total: int) -> int | None:
        return None if value == b"end" else total + 1

    topology = Topology()
    topology.stream("in").aggregate("totals", lambda: 10, add).to("out")
    bench = run(topology, ("in", b"k", b"1"), ("in", b"k", b"1"), ("in", None, b"1"), ("in", b"k", b"end"))
    assert bench.sent == [("out", b"k", b"11"), ("out", b"k", b"12"), ("out", b"k", None)]
    assert bench.stores["totals"] == {}


def test_join_uses_current_row() -> None:
    topology = Topology()
    prices = topology.table("prices", value=JSON)
    orders = topology.stream("orders", value=JSON)
    orders.join(prices, lambda n, price: n * price).to("bills")
    orders.join(prices, lambda n, price: price, left=True).to("seen")
    bench = run(
        topology,
        ("orders", b"a", b"2"),
        ("prices", b"a", b"5"),
        ("orders", b"a", b"2"),
        ("prices", b"a", None),
        ("orders", b"a", b"2"),
    )
    assert [row for row in bench.sent if row[0] == "bills"] == [("bills", b"a", b"10")]
    assert [row[2] for row in bench.sent if row[0] == "seen"] == [b"null", b"5", b"null"] or [
        row[2] for row in bench.sent if row[0] == "seen"
    ] == [None, b"5", None]


def test_custom_step_accesses_its_stores() -> None:
    def first_only(context: Context, key: bytes | None, value: Any, forward: Handler) -> None:
        seen = context.store("seen")
        if key is not None and seen.get(key) is None:
            seen.put(key, b"")
            forward(key, context.timestamp_ms)

    topology = Topology()
    topology.stream("in").process(first_only, stores=["seen"]).to("out")
    bench = run(topology, ("in", b"a", b""), ("in", b"a", b""), ("in", b"b", b""))
    assert bench.sent == [("out", b"a", b"7"), ("out", b"b", b"7")]


def test_invalid_topologies_are_refused() -> None:
    topology = Topology()
    topology.stream("in")
    topology.stream("in")
    with pytest.raises(ValueError, match="read a topic once"):
        topology.build("app")
    again = Topology()
    again.stream("a").repartition("r")
    with pytest.raises(ValueError, match="two repartitions"):
        again.stream("b").repartition("r")


def test_flat_map_values_keeps_key() -> None:
    topology = Topology()
    topology.stream("lines", value=TEXT).flat_map_values(str.split).count("words").to("out")
    assert run(topology, ("lines", b"k", b"to be or")).sent[-1] == ("out", b"k", b"3")
