"""Windowed aggregations in a task. `test_against_topology_test_driver` compares random ones with Kafka Streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.failures import SKIP, Failures, RecordFailed
from anabranch.clients.streams.serdes import JSON, TEXT
from anabranch.clients.streams.task_disk import TaskDisk
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Task
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_graph import Subtopology
from anabranch.clients.streams.topology_test_driver import SentRecord, TopologyTestDriver
from anabranch.clients.streams.windowed_aggregation import Emit, LateTopic
from anabranch.clients.streams.windows import SessionWindows, SlidingWindows, TimeWindows, Windows

CLOSE = Emit.ON_WINDOW_CLOSE


def counting(windows: Windows, emit: Emit = Emit.ON_WINDOW_UPDATE) -> Topology:
    topology = Topology()
    counts = topology.stream("in", value=TEXT).windowed_by(windows, emit=emit).count("counts")
    counts.map(lambda window, count: (b"%s@%d-%d" % window, count)).to("out")
    return topology


def sent(driver: TopologyTestDriver) -> list[tuple[str, Any, int]]:
    return [((row.key or b"").decode(), row.value, row.timestamp_ms) for row in driver.read("out")]


def pipe(driver: TopologyTestDriver, *times_ms: int, key: str = "k") -> None:
    for timestamp_ms in times_ms:
        driver.pipe("in", key, "v", timestamp_ms=timestamp_ms)


def test_every_update_is_handed_on_with_the_highest_timestamp_of_its_window() -> None:
    with TopologyTestDriver(counting(TimeWindows(10, grace_ms=5))) as driver:
        pipe(driver, 3, 1, 12)
        assert sent(driver) == [("k@0-10", 1, 3), ("k@0-10", 2, 3), ("k@10-20", 1, 12)]


def test_record_falls_into_each_hopping_window() -> None:
    with TopologyTestDriver(counting(TimeWindows(10, advance_ms=5))) as driver:
        pipe(driver, 7)
        assert sent(driver) == [("k@0-10", 1, 7), ("k@5-15", 1, 7)]


def test_late_record_is_left_out_and_counted() -> None:
    with TopologyTestDriver(counting(TimeWindows(10, grace_ms=5))) as driver:
        pipe(driver, 3, 14, 4, 15, 5)
        assert sent(driver) == [("k@0-10", 1, 3), ("k@10-20", 1, 14), ("k@0-10", 2, 4), ("k@10-20", 2, 15)]
        assert driver.late == 1


@pytest.mark.parametrize(
    ("windows", "times_ms", "late_ms"),
    [
        (TimeWindows(10, grace_ms=5), (3, 14, 4, 15, 5, 9, 10), [5, 9]),
        (TimeWindows(10, advance_ms=5), (12, 14, 15, 9, 10), [9]),
        (SessionWindows(5), (3, 20, 14, 15), [14]),
    ],
    ids=["time windows", "hopping windows", "sessions"],
)
def test_record_that_no_window_counts_goes_unchanged_to_the_topic_of_late_records(
    windows: Windows, times_ms: tuple[int, ...], late_ms: list[int]
) -> None:
    topology = Topology()
    records = topology.stream("in", value=TEXT).windowed_by(windows, late=LateTopic("late", TEXT))
    records.count("counts")
    headers = (("trace", b"1"),)
    with TopologyTestDriver(topology) as driver:
        for timestamp_ms in times_ms:
            driver.pipe("in", "k", f"of {timestamp_ms}", timestamp_ms=timestamp_ms, headers=headers)
        assert driver.read("late", value=TEXT) == [
            SentRecord(b"k", f"of {timestamp_ms}", timestamp_ms, headers) for timestamp_ms in late_ms
        ]


def test_late_record_without_a_value_goes_to_the_topic_and_one_without_a_key_does_not() -> None:
    topology = Topology()
    topology.stream("in", value=TEXT).windowed_by(TimeWindows(10), late=LateTopic("late", TEXT)).count("counts")
    with TopologyTestDriver(topology) as driver:
        for key, value, timestamp_ms in (("k", "v", 30), ("k", None, 1), (None, "v", 2)):
            driver.pipe("in", key, value, timestamp_ms=timestamp_ms)
        assert driver.read("late", value=TEXT) == [SentRecord(b"k", None, 1)]
    assert "windowed aggregate counts, late records to late" in topology.build("app").describe()


def test_window_that_closes_hands_its_result_on_once() -> None:
    with TopologyTestDriver(counting(TimeWindows(10), CLOSE)) as driver:
        pipe(driver, 3, 4)
        pipe(driver, 5, key="l")
        assert sent(driver) == []
        pipe(driver, 10, key="l")
        assert sent(driver) == [("k@0-10", 2, 4), ("l@0-10", 1, 5)]
        pipe(driver, 9, 11)
        assert sent(driver) == []
        assert driver.late == 1


def test_record_between_two_sessions_merges_them() -> None:
    with TopologyTestDriver(counting(SessionWindows(5, grace_ms=50))) as driver:
        pipe(driver, 10, 19)
        assert sent(driver) == [("k@10-10", 1, 10), ("k@19-19", 1, 19)]
        pipe(driver, 14)
        assert sent(driver) == [("k@10-10", None, 10), ("k@19-19", None, 19), ("k@10-19", 3, 19)]


def test_record_at_the_time_of_its_session_retracts_nothing() -> None:
    with TopologyTestDriver(counting(SessionWindows(5))) as driver:
        pipe(driver, 10, 10)
        assert sent(driver) == [("k@10-10", 1, 10), ("k@10-10", 2, 10)]


def test_session_result_is_handed_on_when_no_record_can_extend_it() -> None:
    with TopologyTestDriver(counting(SessionWindows(5), CLOSE)) as driver:
        pipe(driver, 10, 12, 17, key="a")
        pipe(driver, 22, key="b")
        assert sent(driver) == []
        pipe(driver, 23, key="b")
        assert sent(driver) == [("a@10-17", 3, 17)]


def test_reduce_and_aggregate_merge_sessions_in_their_order() -> None:
    topology = Topology()
    windowed = topology.stream("in", value=TEXT).windowed_by(SessionWindows(5, grace_ms=50))
    windowed.reduce("joined", lambda one, other: one + other, value=TEXT).to("joined", value=TEXT)
    windowed.aggregate(
        "listed", list, lambda key, value, rows: [*rows, value], merge=lambda key, one, other: one + other
    ).to("listed")
    with TopologyTestDriver(topology) as driver:
        for value, timestamp_ms in (("a", 0), ("b", 8), ("c", 4)):
            driver.pipe("in", "k", value, timestamp_ms=timestamp_ms)
        assert driver.read("joined", value=TEXT)[-1].value == "abc"
        assert driver.read("listed")[-1].value == ["a", "b", "c"]


def test_sessions_whose_values_cancel_out_go_on_with_the_record_that_merges_them() -> None:
    topology = Topology()
    windowed = topology.stream("in", value=JSON).windowed_by(SessionWindows(5, grace_ms=50))
    windowed.reduce("sums", lambda one, other: (one + other) or None).to("out")
    with TopologyTestDriver(topology) as driver:
        for value, timestamp_ms in ((1, 0), (-1, 8), (7, 4)):
            driver.pipe("in", "k", value, timestamp_ms=timestamp_ms)
        assert driver.read("out")[-1].value == 7


def test_aggregate_that_becomes_none_deletes_the_window() -> None:
    topology = Topology()
    windowed = topology.stream("in", value=JSON).windowed_by(TimeWindows(10))
    windowed.aggregate("sums", lambda: 0, lambda key, value, total: (total + value) or None).to("out")
    with TopologyTestDriver(topology) as driver:
        for value in (1, -1, 4):
            driver.pipe("in", "k", value, timestamp_ms=1)
        assert [row.value for row in driver.read("out")] == [1, None, 4]


def test_steps_beside_the_aggregation_see_the_time_of_the_record() -> None:
    topology = Topology()
    records = topology.stream("in", value=TEXT)
    records.windowed_by(TimeWindows(10, grace_ms=50)).count("counts").to("counts")
    records.to("records", value=TEXT)
    with TopologyTestDriver(topology) as driver:
        pipe(driver, 9, 2)
        assert [row.timestamp_ms for row in driver.read("records", value=TEXT)] == [9, 2]


def test_windowed_key_is_written_as_key_and_start() -> None:
    topology = Topology()
    topology.stream("in", value=TEXT).windowed_by(TimeWindows(10)).count("counts").to("out")
    with TopologyTestDriver(topology) as driver:
        pipe(driver, 31)
        assert [row.key for row in driver.read("out")] == [b"k" + (30).to_bytes(8, "big")]


def test_sessions_without_merge_and_a_store_behind_windows_are_refused() -> None:
    windowed = Topology().stream("in").windowed_by(SessionWindows(5))
    with pytest.raises(ValueError, match="give merge="):
        windowed.aggregate("s", lambda: 0, lambda key, value, total: total)
    topology = Topology()
    topology.stream("in").windowed_by(TimeWindows(5)).count("counts").count("again")
    with pytest.raises(ValueError, match=r"before the store 'again'.*put `repartition` between them"):
        topology.build("app")


# one task


def task(part: Subtopology, directory: Path, failures: Failures | None = None) -> Task:
    one = Task(TaskId(0, 2), "app", part, TaskDisk(directory, part.stores), state=State.CATCHING_UP, failures=failures)
    one.run()
    return one


def record(timestamp_ms: int, key: bytes = b"k", value: bytes = b"v") -> ConsumerRecord:
    return ConsumerRecord("in", 2, 0, timestamp_ms, key, value, (), -1)


def results(one: Task, *records: ConsumerRecord) -> list[tuple[bytes | None, bytes | None]]:
    return [(row.key, row.value) for row in one.process(records)]


def test_closed_window_stays_closed_in_the_task_that_opens_the_store_next(tmp_path: Path) -> None:
    part = counting(TimeWindows(10), CLOSE).build("app").subtopologies[0]
    first = task(part, tmp_path)
    assert results(first, record(3), record(12)) == [(b"k@0-10", b"1")]
    first.on_committed({"counts": [0, 1, 2]}, transactional=True)
    first.close()
    again = task(part, tmp_path)
    assert results(again, record(4), record(20)) == [(b"k@10-20", b"1")], "the window of 4 is closed"
    again.close()


def test_aborted_records_are_counted_once(tmp_path: Path) -> None:
    part = counting(SessionWindows(5), CLOSE).build("app").subtopologies[0]
    one = task(part, tmp_path)
    one.process([record(3), record(4)])
    one.on_committed({"counts": [0, 1]}, transactional=True)
    assert results(one, record(5), record(30)) == [(b"k@3-5", b"3")]
    one.on_aborted()
    one.run()
    assert results(one, record(5), record(30)) == [(b"k@3-5", b"3")]
    one.close()


def test_failed_record_with_a_wrong_timestamp_makes_no_later_record_late() -> None:
    topology = Topology()
    sums = (
        topology.stream("in", value=JSON)
        .windowed_by(TimeWindows(10))
        .aggregate("sums", lambda: 0, lambda key, value, total: total + value)
    )
    sums.map(lambda window, total: (window.key, total)).to("out")
    with TopologyTestDriver(topology, processing_handler=SKIP) as driver:
        for value, timestamp_ms in ((1, 14), ("its time is in microseconds", 14_000_000), (2, 15)):
            driver.pipe("in", "k", value, timestamp_ms=timestamp_ms)
        assert [row.value for row in driver.read("out")] == [1, 3]
        assert driver.late == 0


@pytest.mark.parametrize(
    "windows", [TimeWindows(10), SlidingWindows(10), SessionWindows(10)], ids=lambda one: type(one).__name__
)
def test_record_without_a_timestamp_fails(windows: Windows) -> None:
    """As in Kafka Streams. It was counted in no window, in the one of time 0, or in a session before that."""
    with TopologyTestDriver(counting(windows)) as driver, pytest.raises(RecordFailed, match="its timestamp is -1"):
        pipe(driver, -1)


def test_result_of_a_closed_window_that_fails_is_skipped_alone(tmp_path: Path) -> None:
    topology = Topology()
    counts = topology.stream("in", value=TEXT).windowed_by(TimeWindows(10), emit=CLOSE).count("counts")
    counts.peek(lambda window, count: 1 // (count - 2)).map(lambda window, count: (window.key, count)).to("out")
    failures = Failures(processing_handler=SKIP)
    one = task(topology.build("app").subtopologies[0], tmp_path, failures)
    assert results(one, record(3), record(4), record(5, b"l"), record(11)) == [(b"l", b"1")]
    assert results(one, record(24)) == [(b"k", b"1")], "the record that closed the windows is counted"
    assert failures.dropped == 1
    one.close()
