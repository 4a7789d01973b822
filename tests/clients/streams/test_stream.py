"""Each step of a stream, in a topology under `TopologyTestDriver`."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.clients.streams.context import Context, Handler
from anabranch.clients.streams.failures import RecordFailed
from anabranch.clients.streams.serdes import BYTES, JSON, TEXT
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_test_driver import SentRecord, TopologyTestDriver


def sent(topology: Topology, topic: str, *records: tuple[str, str | None, Any]) -> list[tuple[bytes | None, Any]]:
    with TopologyTestDriver(topology) as driver:
        for source, key, value in records:
            driver.pipe(source, key, value)
        return [(row.key, row.value) for row in driver.read(topic)]


def test_split_sends_each_record_to_the_first_predicate_that_holds_and_the_rest_to_the_last_stream() -> None:
    topology = Topology()
    small, even, rest = topology.stream("in", value=JSON).split(
        lambda key, number: number < 3, lambda key, number: number % 2 == 0
    )
    small.map_values(lambda number: ["small", number]).to("out")
    even.map_values(lambda number: ["even", number]).to("out")
    rest.map_values(lambda number: ["rest", number]).to("out")
    rows = sent(topology, "out", *[("in", "k", number) for number in (2, 4, 5, 0)])
    assert [value for _, value in rows] == [["small", 2], ["even", 4], ["rest", 5], ["small", 0]]


def test_split_calls_no_predicate_after_one_that_holds() -> None:
    called: list[int] = []
    topology = Topology()
    first, _, _ = topology.stream("in", value=JSON).split(
        lambda key, number: bool(called.append(1)) or number > 0, lambda key, number: bool(called.append(2))
    )
    first.to("out")
    sent(topology, "out", ("in", "k", 1), ("in", "k", -1))
    assert called == [1, 1, 2]


def test_merged_streams_share_the_steps_behind_and_their_store() -> None:
    topology = Topology()
    web = topology.stream("web", value=TEXT)
    shops = topology.stream("shops", value=TEXT)
    web.merge(shops).count("orders").to("out")
    assert len(topology.build("app").subtopologies) == 1
    assert sent(topology, "out", ("web", "k", "a"), ("shops", "k", "b")) == [(b"k", 1), (b"k", 2)]


def test_streams_of_another_topology_cannot_be_merged() -> None:
    with pytest.raises(ValueError, match="only streams of one topology"):
        Topology().stream("a").merge(Topology().stream("b"))


def test_peek_sees_each_record_and_changes_none() -> None:
    seen: list[tuple[bytes | None, Any]] = []
    topology = Topology()
    topology.stream("in", value=JSON).peek(lambda key, value: seen.append((key, value))).to("out")
    rows = sent(topology, "out", ("in", "k", 1), ("in", None, None))
    assert rows == seen == [(b"k", 1), (None, None)]


def test_selected_keys_go_through_a_repartition_to_their_store() -> None:
    topology = Topology()
    by_city = topology.stream("in", value=JSON).select_key(lambda key, row: row["city"].encode())
    by_city.repartition("city", value=JSON).count("cities").to("out")
    rows = sent(topology, "out", ("in", "1", {"city": "Bern"}), ("in", "2", {"city": "Bern"}))
    assert rows == [(b"Bern", 1), (b"Bern", 2)]
    unsafe = Topology()
    unsafe.stream("in").select_key(lambda key, row: row).count("cities")
    with pytest.raises(ValueError, match=r"keys are changed .* before the store 'cities'"):
        unsafe.build("app")


def test_reduce_keeps_the_first_value_and_combines_the_next() -> None:
    topology = Topology()
    topology.stream("in", value=JSON).reduce("most", max).to("out")
    rows = sent(topology, "out", ("in", "k", 3), ("in", "k", 2), ("in", "j", 1), ("in", "k", 5))
    assert rows == [(b"k", 3), (b"k", 3), (b"j", 1), (b"k", 5)]


def test_records_without_key_or_value_are_not_counted() -> None:
    topology = Topology()
    topology.stream("in", value=JSON).count("counts").to("out")
    assert sent(topology, "out", ("in", "k", None), ("in", None, 1), ("in", "k", 1)) == [(b"k", 1)]


def test_joins_leave_out_records_without_a_value_and_left_joins_pass_those_without_a_key() -> None:
    topology = Topology()
    rows = topology.table("rows", value=JSON)
    stream = topology.stream("in", value=JSON)
    stream.join(rows, lambda value, row: [value, row]).to("inner")
    stream.join(rows, lambda value, row: [value, row], left=True).to("left")
    with TopologyTestDriver(topology) as driver:
        driver.pipe("rows", "k", 1)
        for key, value in (("k", None), (None, 2), ("k", 3)):
            driver.pipe("in", key, value)
        assert [row.value for row in driver.read("inner")] == [[3, 1]]
        assert [row.value for row in driver.read("left")] == [[2, None], [3, 1]]


@pytest.mark.parametrize("left", [False, True])
def test_repartition_leaves_out_records_without_a_key_unless_a_left_join_follows(left: bool) -> None:
    topology = Topology()
    rows = topology.table("rows", value=JSON)
    again = topology.stream("in", value=JSON).repartition("again", value=JSON)
    again.join(rows, lambda value, row: value, left=left)
    again.to("out")
    expected = [(None, 1), (b"k", 2)] if left else [(b"k", 2)]
    assert sent(topology, "out", ("in", None, 1), ("in", "k", 2)) == expected


def test_repartition_passes_records_without_a_key_to_a_left_join_behind_another_repartition() -> None:
    topology = Topology()
    rows = topology.table("rows", value=JSON)
    first = topology.stream("in", value=JSON).repartition("first", value=JSON)
    first.to("out")
    first.repartition("second", value=JSON).join(rows, lambda value, row: value, left=True).to("joined")
    records = ("in", None, 1), ("in", "k", 2)
    assert sent(topology, "out", *records) == sent(topology, "joined", *records) == [(None, 1), (b"k", 2)]


def test_output_has_time_and_headers_of_its_input_unless_a_step_sets_others() -> None:
    def stamp(context: Context, key: bytes | None, value: Any, forward: Handler) -> None:
        assert context.headers == (("trace", b"1"),)
        assert context.stream_time_ms == max(context.timestamp_ms, 70)
        context.timestamp_ms = 5
        context.headers = (*context.headers, ("step", b"stamp"))
        forward(key, value)

    topology = Topology()
    stream = topology.stream("in")
    stream.to("same", value=BYTES)
    stream.process(stamp, stores=[]).to("stamped", value=BYTES)
    with TopologyTestDriver(topology) as driver:
        for timestamp_ms in (70, 60):
            driver.pipe("in", "k", b"v", timestamp_ms=timestamp_ms, headers=[("trace", b"1")])
        assert driver.read("same", value=BYTES) == [
            SentRecord(b"k", b"v", 70, (("trace", b"1"),)),
            SentRecord(b"k", b"v", 60, (("trace", b"1"),)),
        ]
        stamped = SentRecord(b"k", b"v", 5, (("trace", b"1"), ("step", b"stamp")))
        assert driver.read("stamped", value=BYTES) == [stamped, stamped]


def test_step_that_sets_time_and_headers_changes_them_for_no_step_beside_it_and_no_later_record() -> None:
    def stamp(context: Context, key: bytes | None, value: Any, forward: Handler) -> None:
        context.timestamp_ms += 1
        context.headers = (*context.headers, ("step", b"stamp"))
        forward(key, value)

    topology = Topology()
    twice = topology.stream("in").flat_map_values(lambda value: [value, value])
    twice.process(stamp).to("stamped", value=BYTES)
    twice.to("same", value=BYTES)
    with TopologyTestDriver(topology) as driver:
        driver.pipe("in", "k", b"v", timestamp_ms=70)
        assert driver.read("stamped", value=BYTES) == [SentRecord(b"k", b"v", 71, (("step", b"stamp"),))] * 2
        assert driver.read("same", value=BYTES) == [SentRecord(b"k", b"v", 70)] * 2


def test_description_shows_each_step_once() -> None:
    topology = Topology()
    planes = topology.table("planes")
    flights = topology.stream("flights")
    late, _ = flights.split(lambda key, value: True)
    late.merge(topology.stream("reports")).join(planes, lambda flight, plane: flight).to("late")
    flights.map(lambda key, value: (value, key)).repartition("by-plane").count("flown").to("counts")
    assert topology.build("app").describe() == DESCRIPTION


DESCRIPTION = """\
subtopology 0, stores planes-table
  source flights
    split
      branch 0
        merge
          join planes-table
            sink late
      branch 1
    map
      repartition
        sink by-plane
  source planes
    table planes-table
  source reports
    -> merge of line 5
subtopology 1, stores flown
  source app-by-plane-repartition
    aggregate flown
      sink counts"""


def test_join_global_looks_up_any_key_and_a_change_of_the_table_sends_nothing() -> None:
    topology = Topology()
    planes = topology.global_table("planes", value=JSON)
    flights = topology.stream("flights", value=JSON)
    joined = flights.join_global(planes, lambda key, plane: plane.encode() or None, lambda plane, seats: [plane, seats])
    joined.to("out")
    rows = [
        ("flights", "f1", "p1"),
        ("planes", "p1", 149),
        ("planes", None, 5),
        ("flights", "f2", "p1"),
        ("flights", None, "p1"),
        ("flights", "f3", ""),
        ("flights", "f4", None),
        ("planes", "p1", None),
        ("flights", "f5", "p1"),
    ]
    assert sent(topology, "out", *rows) == [(b"f2", ["p1", 149]), (None, ["p1", 149])]


def test_left_join_global_passes_records_without_a_row_or_a_key_of_one() -> None:
    topology = Topology()
    planes = topology.global_table("planes", value=JSON)
    flights = topology.stream("flights", value=JSON)
    key_of = lambda key, plane: plane.encode() or None  # noqa: E731
    flights.join_global(planes, key_of, lambda plane, seats: [plane, seats], left=True).to("out")
    rows = [("flights", "f1", "p1"), ("flights", "f2", ""), ("flights", None, ""), ("flights", "f3", None)]
    assert sent(topology, "out", *rows) == [(b"f1", ["p1", None]), (b"f2", ["", None]), (None, ["", None])]


def test_step_reads_the_store_of_a_global_table() -> None:
    topology = Topology()
    topology.global_table("planes", store="seats")

    def step(context: Context, key: bytes, value: Any, forward: Handler) -> None:
        rows = context.global_store("seats")
        forward(key, [len(list(rows.items())), (rows.get(key) or b"").decode()])

    topology.stream("flights").process(step).to("out")
    rows = [("planes", "p1", b"149"), ("planes", "p2", b"20"), ("flights", "p1", b"")]
    assert sent(topology, "out", *rows) == [(b"p1", [2, "149"])]


def test_wrong_joins_with_tables_are_refused_with_the_right_ones() -> None:
    topology, other = Topology(), Topology()
    flights, planes, everywhere = topology.stream("flights"), topology.table("planes"), topology.global_table("all")
    with pytest.raises(TypeError, match="join a global table with `join_global`"):
        flights.join(everywhere, max)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="join a table with `join`"):
        flights.join_global(planes, max, max)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="of one topology"):
        flights.join_global(other.global_table("all"), max, max)
    with pytest.raises(ValueError, match="streams and tables of one topology can be joined"):
        flights.join(other.table("planes"), max)  # it would find nothing
    with pytest.raises(TypeError, match="join a stream by `join_within`"):
        flights.join(planes.filter(lambda key, value: True), max)  # type: ignore[arg-type]
    for wrong in (everywhere, flights):
        with pytest.raises(TypeError, match="`join_table` needs the result of"):
            planes.join_table(wrong, max, store="s")  # type: ignore[arg-type]
    flights.join_global(everywhere, lambda key, value: value.decode(), max).to("out")  # type: ignore[arg-type,return-value]
    with pytest.raises(RecordFailed, match="key_of returns the key of a row as bytes, or None; it returned 'p1'"):
        sent(topology, "out", ("flights", "f1", b"p1"))
