"""Joins of two streams in a task. `test_against_topology_test_driver` compares random ones with Kafka Streams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.failures import SKIP, Failures
from anabranch.clients.streams.serdes import TEXT
from anabranch.clients.streams.task_disk import TaskDisk
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Task
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_test_driver import TopologyTestDriver
from anabranch.clients.streams.windows import JoinWindows

TEN_MS = JoinWindows(10, 10)
FAR_MS = 1000


def joining(windows: JoinWindows = TEN_MS, *, left: bool = False, outer: bool = False) -> Topology:
    topology = Topology()
    one, other = (topology.stream(topic, value=TEXT) for topic in ("left", "right"))
    joined = one.join_within(other, windows, lambda value, found: [value, found], store="pairs", left=left, outer=outer)
    joined.to("out")
    return topology


def results(topology: Topology, *records: tuple[str, str | None, str | None, int]) -> list[tuple[Any, int]]:
    with TopologyTestDriver(topology) as driver:
        for topic, key, value, timestamp_ms in records:
            driver.pipe(topic, key, value, timestamp_ms=timestamp_ms)
        return [(row.value, row.timestamp_ms) for row in driver.read("out")]


def test_records_within_the_window_are_paired_with_the_higher_timestamp() -> None:
    rows = [("left", "k", "a", 20), ("right", "k", "b", 10), ("right", "k", "c", 30), ("right", "k", "d", 31)]
    assert results(joining(JoinWindows(10, 10, 50)), *rows, ("left", "other", "e", 20), ("left", "k", "f", 21)) == [
        (["a", "b"], 20),
        (["a", "c"], 30),
        (["f", "c"], 30),
        (["f", "d"], 31),
    ]


def test_window_before_and_after_is_that_of_the_left_record() -> None:
    rows = [("left", "k", "a", 100), ("right", "k", "early", 97), ("right", "k", "late", 106), ("right", "k", "b", 105)]
    assert results(joining(JoinWindows(2, 5, 50)), *rows) == [(["a", "b"], 105)]


def test_records_of_one_key_and_timestamp_are_all_joined_in_their_order() -> None:
    rows = [("left", "k", "a", 5), ("left", "k", "b", 5), ("right", "k", "c", 5)]
    assert [value for value, _ in results(joining(), *rows)] == [["a", "c"], ["b", "c"]]


def test_records_without_value_or_key_are_not_joined() -> None:
    rows = [("left", "k", None, 5), ("left", None, "a", 5), ("right", "k", "b", 5), ("right", None, "c", 5)]
    assert results(joining(), *rows) == []
    assert results(joining(left=True), *rows) == [(["a", None], 5)]
    assert results(joining(outer=True), *rows) == [(["a", None], 5), ([None, "c"], 5)]


def test_unjoined_records_are_handed_on_once_after_window_and_grace_period_by_time_and_right_side_first() -> None:
    rows = [("left", "k", "b", 100), ("right", "l", "a", 100), ("left", "m", "c", 100)]
    windows = JoinWindows(10, 10, 5)
    assert results(joining(windows, outer=True), *rows, ("left", "n", "d", 115)) == []
    assert results(joining(windows, outer=True), *rows, ("left", "n", "d", 116), ("left", "n", "e", 117)) == [
        ([None, "a"], 100),
        (["b", None], 100),
        (["c", None], 100),
    ]
    assert results(joining(windows, left=True), *rows, ("left", "n", "d", 116)) == [
        (["b", None], 100),
        (["c", None], 100),
    ]


def test_joined_record_has_no_result_alone() -> None:
    rows = [("left", "k", "a", 100), ("left", "k", "a2", 100), ("right", "k", "b", 110), ("right", "far", "x", FAR_MS)]
    assert results(joining(left=True), *rows) == [(["a", "b"], 110), (["a2", "b"], 110)]


def test_late_record_is_joined_with_kept_records_only_and_counted() -> None:
    with TopologyTestDriver(joining(outer=True)) as driver:
        for topic, timestamp_ms in (("left", 100), ("left", FAR_MS), ("right", 100), ("left", 100), ("right", 101)):
            driver.pipe(topic, "k", f"{topic} {timestamp_ms}", timestamp_ms=timestamp_ms)
        assert [row.value for row in driver.read("out")] == [
            ["left 100", None],
            [None, "right 100"],
            ["left 100", "right 100"],
            [None, "right 101"],
        ]
        assert driver.late == 1


def test_expired_records_are_removed_from_the_stores() -> None:
    with TopologyTestDriver(joining(outer=True)) as driver:
        for timestamp_ms in (100, 101, FAR_MS):
            driver.pipe("left", "k", "a", timestamp_ms=timestamp_ms)
            driver.pipe("right", "l", "b", timestamp_ms=timestamp_ms)
        assert {name: len(list(store.items())) for name, store in driver.stores.items()} == {
            "pairs-outer-this-join-store": 1,
            "pairs-outer-other-join-store": 1,
            "pairs-outer-shared-join-store": 2,
        }


def test_stream_is_joined_with_itself() -> None:
    topology = Topology()
    records = topology.stream("in", value=TEXT)
    records.join_within(records, TEN_MS, lambda one, other: one + other, store="pairs").to("out", value=TEXT)
    with TopologyTestDriver(topology) as driver:
        driver.pipe("in", "k", "a", timestamp_ms=1)
        driver.pipe("in", "k", "b", timestamp_ms=2)
        assert [row.value for row in driver.read("out", value=TEXT)] == ["aa", "ba", "ab", "bb"]


def test_stream_of_another_topology_and_changed_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="streams of one topology"):
        Topology().stream("a").join_within(Topology().stream("b"), TEN_MS, max, store="s")
    topology = Topology()
    other = topology.stream("right").select_key(lambda key, value: value)
    topology.stream("left").join_within(other, TEN_MS, max, store="s")
    with pytest.raises(ValueError, match="put `repartition` between"):
        topology.build("app")


# one task


def task(directory: Path, failures: Failures | None = None, **kind: bool) -> Task:
    part = joining(**kind).build("app").subtopologies[0]
    one = Task(TaskId(0, 2), "app", part, TaskDisk(directory, part.stores), state=State.CATCHING_UP, failures=failures)
    one.run()
    return one


def sent(one: Task, *records: tuple[str, bytes, int]) -> list[bytes | None]:
    return [
        row.value
        for topic, value, timestamp_ms in records
        for row in one.process([ConsumerRecord(topic, 2, 0, timestamp_ms, b"k", value, (), -1)])
    ]


def commit(one: Task) -> None:
    one.on_committed({name: [0] for name in one.stores}, transactional=True)


def test_records_and_stream_time_go_on_in_the_task_that_opens_the_stores_next(tmp_path: Path) -> None:
    first = task(tmp_path, outer=True)
    assert sent(first, ("left", b"a", 100), ("left", b"b", 300)) == [b'["a",null]']
    commit(first)
    first.close()
    again = task(tmp_path, outer=True)
    assert sent(again, ("right", b"late", 100), ("right", b"c", 305)) == [b'[null,"late"]', b'["b","c"]']
    assert sent(again, ("right", b"d", 500)) == [], "the one of 300 is joined"
    again.close()


def test_aborted_records_are_joined_once(tmp_path: Path) -> None:
    one = task(tmp_path, outer=True)
    assert sent(one, ("left", b"a", 100)) == []
    commit(one)
    for _ in range(2):
        assert sent(one, ("right", b"b", 105), ("right", b"c", 300)) == [b'["a","b"]']
        one.on_aborted()
        one.run()
    assert sent(one, ("right", b"c", 300)) == [b'["a",null]']
    one.close()


def test_failed_record_leaves_no_trace(tmp_path: Path) -> None:
    topology = Topology()
    left, right = (topology.stream(topic, value=TEXT) for topic in ("left", "right"))
    joined = left.join_within(right, TEN_MS, lambda one, other: [one, other], store="pairs", outer=True)
    joined.peek(lambda key, pair: 1 // (pair[1] != "bad")).to("out")
    part = topology.build("app").subtopologies[0]
    disk = TaskDisk(tmp_path, part.stores)
    failures = Failures(processing_handler=SKIP)
    one = Task(TaskId(0, 2), "app", part, disk, state=State.CATCHING_UP, failures=failures)
    one.run()
    assert sent(one, ("left", b"a", 100), ("right", b"bad", 105), ("right", b"bad", 104)) == []
    assert sent(one, ("right", b"good", 106)) == [b'["a","good"]'], "a is there, and the bad ones are not"
    assert sent(one, ("left", b"c", 106)) == [b'["c","good"]']
    one.close()


def test_unmatched_record_whose_result_fails_is_skipped_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The record that closes its window is another one, and is joined."""
    topology = Topology()
    left, right = (topology.stream(topic, value=TEXT) for topic in ("left", "right"))
    joined = left.join_within(right, TEN_MS, lambda one, other: one + (other or ""), store="pairs", left=True)
    lengths = joined.aggregate("lengths", lambda: 0, lambda key, value, length: length + len(value))
    lengths.peek(lambda key, length: 1 // (length - 3)).to("out")
    with TopologyTestDriver(topology, processing_handler=SKIP) as driver:
        for key, value, timestamp_ms in (("a", "1", 100), ("b", "bad", 101), ("c", "4444", 102)):
            driver.pipe("left", key, value, timestamp_ms=timestamp_ms)
        driver.pipe("left", "d", "22", timestamp_ms=300)
        assert [(row.key, row.value, row.timestamp_ms) for row in driver.read("out")] == [
            (b"a", 1, 100),
            (b"c", 4, 102),
        ]
        assert driver.store("lengths").get(b"b") is None
        assert "the unmatched record at 101 of key b'b' cannot be processed: ZeroDivisionError" in caplog.text
        driver.pipe("right", "d", "2", timestamp_ms=305)
        driver.pipe("right", "d", "4444", timestamp_ms=305)
        assert [row.value for row in driver.read("out")] == [6], "the first one fails, the second does not"
        driver.pipe("left", "e", "1", timestamp_ms=900)
        driver.pipe("left", "e", "1", timestamp_ms=1900)
        assert [(row.key, row.value) for row in driver.read("out")] == [(b"e", 1)]
