"""Sliding windows in a topology. `test_against_topology_test_driver` compares random ones with Kafka Streams."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.clients.streams.failures import SKIP
from anabranch.clients.streams.serdes import JSON, TEXT
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_test_driver import TopologyTestDriver
from anabranch.clients.streams.windowed_aggregation import Emit, LateTopic
from anabranch.clients.streams.windows import SlidingWindows

LONG_MS = 1_000_000


def listing(windows: SlidingWindows, emit: Emit = Emit.ON_WINDOW_UPDATE) -> Topology:
    """The times of each window's records."""
    topology = Topology()
    records = topology.stream("in", value=JSON).windowed_by(windows, emit=emit, late=LateTopic("late", JSON))
    times = records.aggregate("times", list, lambda key, value, total: [*total, value])
    times.map(lambda window, total: (b"%s@%d-%d" % window, total)).to("out")
    return topology


def sent(driver: TopologyTestDriver, topic: str = "out") -> list[tuple[str, Any]]:
    return [((row.key or b"").decode(), row.value) for row in driver.read(topic)]


def pipe(driver: TopologyTestDriver, *times_ms: int) -> None:
    for timestamp_ms in times_ms:
        driver.pipe("in", "k", timestamp_ms, timestamp_ms=timestamp_ms)


def test_record_makes_a_window_that_ends_with_it_and_one_behind_the_record_before() -> None:
    with TopologyTestDriver(listing(SlidingWindows(10))) as driver:
        pipe(driver, 20, 24)
        assert sent(driver) == [("k@10-20", [20]), ("k@21-31", [24]), ("k@14-24", [20, 24])]


def test_record_before_others_makes_a_window_of_these() -> None:
    with TopologyTestDriver(listing(SlidingWindows(10, LONG_MS))) as driver:
        pipe(driver, 24, 20)
        assert sent(driver) == [
            ("k@14-24", [24]),
            ("k@14-24", [24, 20]),
            ("k@10-20", [20]),
            ("k@21-31", [24]),
        ]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=12), st.integers(1, 25))
def test_every_set_of_records_within_the_difference_has_one_window(times_ms: list[int], difference_ms: int) -> None:
    with TopologyTestDriver(listing(SlidingWindows(difference_ms, LONG_MS))) as driver:
        pipe(driver, *times_ms)
        found = {key: sorted(total) for key, total in sent(driver)}
    starts = {max(0, time - difference_ms) for time in times_ms} | {time + 1 for time in times_ms}
    expected = {
        start: [time for time in sorted(times_ms) if start <= time <= start + difference_ms] for start in starts
    }
    assert found == {f"k@{start}-{start + difference_ms}": rows for start, rows in expected.items() if rows}


def test_closed_window_has_its_result_once_and_open_windows_are_made_of_it() -> None:
    with TopologyTestDriver(listing(SlidingWindows(10, 2), Emit.ON_WINDOW_CLOSE)) as driver:
        pipe(driver, 20, 23)
        assert sent(driver) == [("k@10-20", [20])]
        pipe(driver, 22)  # its window has what the closed one has
        assert sent(driver) == []
        pipe(driver, 99)
        assert sent(driver) == [
            ("k@12-22", [20, 22]),
            ("k@13-23", [20, 23, 22]),
            ("k@21-31", [23, 22]),
            ("k@23-33", [23]),
        ]


def test_record_that_no_window_counts_goes_to_the_topic_of_late_records() -> None:
    with TopologyTestDriver(listing(SlidingWindows(10, 2))) as driver:
        pipe(driver, 20, 40)
        driver.read("out")
        pipe(driver, 30)
        assert sent(driver) == [("k@30-40", [40, 30]), ("k@31-41", [40])], "one window counts it, one is closed"
        assert sent(driver, "late") == []
        pipe(driver, 29, 27)
        assert sent(driver, "late") == [("k", 29), ("k", 27)]
        assert sent(driver) == []
        assert driver.late == 3


def test_records_without_a_key_or_a_value_are_left_out() -> None:
    with TopologyTestDriver(listing(SlidingWindows(10))) as driver:
        driver.pipe("in", None, 1, timestamp_ms=50)
        driver.pipe("in", "k", None, timestamp_ms=50)
        assert sent(driver) == sent(driver, "late") == []


def test_failed_record_is_in_no_window() -> None:
    topology = Topology()
    counts = topology.stream("in", value=TEXT).windowed_by(SlidingWindows(10, LONG_MS)).count("counts")
    checked = counts.peek(lambda window, count: 1 // (window.end_ms - 25))
    checked.map(lambda window, count: (b"%d" % window.start_ms, count)).to("out")
    with TopologyTestDriver(topology, processing_handler=SKIP) as driver:
        for timestamp_ms in (20, 25, 24):
            driver.pipe("in", "k", "v", timestamp_ms=timestamp_ms)
        assert sent(driver) == [("10", 1), ("21", 1), ("14", 2)]
