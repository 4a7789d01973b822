"""Applications under `TopologyTestDriver`, as an author of one would test them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.clients.streams.context import Clock, Context, Handler, Timer
from anabranch.clients.streams.failures import DEAD_LETTER, SKIP, RecordFailed
from anabranch.clients.streams.serdes import BYTES, JSON, TEXT
from anabranch.clients.streams.tasks import FIRED_MAX
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_test_driver import SentRecord, TopologyTestDriver


def word_counts() -> Topology:
    topology = Topology()
    lines = topology.stream("lines", value=TEXT)
    words = lines.flat_map(lambda key, line: [(word.encode(), b"") for word in line.split()])
    words.repartition("words").count("counts").to("word-counts")
    return topology


def test_records_pass_through_repartition_topics_in_the_order_of_sending() -> None:
    with TopologyTestDriver(word_counts(), application_id="app") as driver:
        driver.pipe("lines", None, "b a b", timestamp_ms=5)
        assert driver.read("word-counts") == [
            SentRecord(b"b", 1, 5),
            SentRecord(b"a", 1, 5),
            SentRecord(b"b", 2, 5),
        ]
        assert [row.key for row in driver.read("app-words-repartition", value=BYTES)] == [b"b", b"a", b"b"]
        assert driver.read("word-counts") == [], "a record is read once"
        assert driver.store("counts").get(b"b") == b"2"


def test_records_get_the_time_of_the_driver_and_keep_their_own() -> None:
    topology = Topology()
    topology.stream("in").to("out", value=BYTES)
    with TopologyTestDriver(topology, now_ms=1000) as driver:
        driver.pipe("in", "k", b"1")
        driver.advance(1000)
        driver.pipe("in", "k", b"2")
        driver.pipe("in", "k", b"3", timestamp_ms=7)
        assert [row.timestamp_ms for row in driver.read("out", value=BYTES)] == [1000, 2000, 7]


def test_advance_calls_all_timers_that_are_due_however_many_there_are() -> None:
    def remember(context: Context, key: bytes | None, value: Any, forward: Handler) -> None:
        assert key is not None
        context.timers("due").set(key, context.now_ms + 100)

    due = Timer("due", lambda context, key, due_ms, forward: forward(key, b""), Clock.WALL_CLOCK_TIME)
    topology = Topology()
    topology.stream("in").process(remember, timers=[due]).to("out", value=BYTES)
    with TopologyTestDriver(topology) as driver:
        for number in range(FIRED_MAX + 1):
            driver.pipe("in", str(number), b"")
        driver.advance(99)
        assert not driver.read("out", value=BYTES)
        driver.advance(1)
        assert len(driver.read("out", value=BYTES)) == FIRED_MAX + 1


def test_rows_of_a_store_that_a_test_put_are_joined() -> None:
    topology = Topology()
    planes = topology.table("planes", value=JSON)
    topology.stream("flights", value=JSON).join(planes, lambda flight, plane: [flight, plane]).to("joined")
    with TopologyTestDriver(topology) as driver:
        driver.store("planes-table").put(b"N1", b"149")
        driver.pipe("flights", b"N1", "IAH")
        driver.pipe("planes", b"N1", None)
        driver.pipe("flights", b"N1", "MIA")
        assert driver.read("joined") == [SentRecord(b"N1", ["IAH", 149], 0)]


def test_failed_record_raises_and_leaves_what_earlier_records_did() -> None:
    topology = Topology()
    topology.stream("in", value=TEXT).map_values(int).count("counts").to("out")
    with TopologyTestDriver(topology) as driver:
        driver.pipe("in", "k", "1")
        with pytest.raises(RecordFailed, match=r"in-0 at offset 1, key b'k', cannot be processed: ValueError"):
            driver.pipe("in", "k", "one")
        assert driver.store("counts").get(b"k") == b"1"


def test_handlers_are_those_of_an_instance() -> None:
    topology = Topology()
    topology.stream("in", value=TEXT).map_values(int).count("counts").to("out")
    with TopologyTestDriver(
        topology,
        deserialization_handler=SKIP,
        processing_handler=DEAD_LETTER,
        errors_dead_letter_queue_topic_name="failed",
    ) as driver:
        driver.pipe("in", "k", b"\xff", serde=BYTES)
        assert driver.read("failed") == []
        driver.pipe("in", "k", "one")
        (failed,) = driver.read("failed", value=TEXT)
        assert failed.value == "one"
        assert ("__streams.errors.topic", b"in") in failed.headers
        assert driver.read("out") == []


def test_unknown_topics_and_stores_are_refused_with_those_there_are() -> None:
    with TopologyTestDriver(word_counts()) as driver:
        with pytest.raises(ValueError, match="does not read 'line'; did you mean lines"):
            driver.pipe("line", None, "a")
        with pytest.raises(ValueError, match="has no store 'count'; did you mean counts"):
            driver.store("count")
        with pytest.raises(TypeError, match="did you mean timestamp_ms"):
            driver.pipe("lines", None, "a", timestamp=1)  # type: ignore[call-arg]


def test_close_removes_the_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with TopologyTestDriver(word_counts()):
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_global_table_gets_rows_that_are_piped_sent_or_put() -> None:
    topology = Topology()
    planes = topology.global_table("planes", store="seats", value=JSON)
    topology.stream("news", value=JSON).to("planes")
    flights = topology.stream("flights", value=TEXT)
    flights.join_global(planes, lambda key, plane: plane.encode(), lambda plane, seats: seats, left=True).to("out")
    with TopologyTestDriver(topology) as driver:
        driver.pipe("planes", "piped", 1, timestamp_ms=5)
        driver.pipe("news", "sent", 2)
        driver.store("seats").put(b"put", b"3")
        for plane in ("piped", "sent", "put", "other"):
            driver.pipe("flights", "f", plane)
        driver.pipe("planes", "put", 4)
        driver.pipe("flights", "f", "put")
        assert [row.value for row in driver.read("out")] == [1, 2, 3, None, 4]
        assert driver.store("seats").get_timestamped(b"piped") == (b"1", 5)
        with pytest.raises(ValueError, match="does not read 'plane'; did you mean planes"):
            driver.pipe("plane", "piped", 1)
