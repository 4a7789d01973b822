"""The disk has exactly the committed state, whatever happens to a task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.clients.consumer.consumer_record import ConsumerRecord
from anabranch.clients.streams.context import Context, Handler
from anabranch.clients.streams.failures import SKIP, Failures, RecordFailed
from anabranch.clients.streams.serdes import BYTES
from anabranch.clients.streams.state_store import StateStore
from anabranch.clients.streams.task_disk import DATA_FILE, TaskDisk, Write
from anabranch.clients.streams.task_id import TaskId
from anabranch.clients.streams.task_state import State
from anabranch.clients.streams.tasks import Output, Task
from anabranch.clients.streams.topology import Topology
from anabranch.clients.streams.topology_test_driver import TopologyTestDriver
from anabranch.protocol.hashing import murmur2
from anabranch.protocol.lineage import Lineage
from tests.clients.streams.changelog_records import logged, row


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    topology = Topology()
    topology.stream("in").count("counts").to("out")
    subtopology = topology.build("app").subtopologies[0]
    disk = TaskDisk(tmp_path, subtopology.stores)
    made = Task(TaskId(0, 3), "app", subtopology, disk, state=State.CATCHING_UP)
    yield made
    made.close()


def records(*keys: bytes) -> list[ConsumerRecord]:
    return [ConsumerRecord("in", 3, offset, 100 + offset, key, b"", (), 0) for offset, key in enumerate(keys)]


def running(task: Task) -> Task:
    task.state_manager.aim({"counts": task.stores["counts"].checkpoint.offset})
    assert task.state_manager.restored
    task.run()
    return task


def test_task_runs_when_restored_to_its_target(task: Task) -> None:
    assert not task.state_manager.restored, "the target is not known"
    task.state_manager.aim({"counts": 3})
    task.state_manager.restore("counts", [logged(0, 90, b"k", b"4"), logged(1, 91, b"gone", b"1")], 2)
    assert not task.state_manager.restored
    task.state_manager.restore("counts", [logged(2, 92, b"gone", None)], 3)
    assert task.state_manager.restored
    task.run()
    assert task.process(records(b"k")) == [Output("out", b"k", b"5", 100)]
    assert task.stores["counts"].get(b"gone") is None


def test_timestamp_of_a_value_is_that_of_its_record_in_the_changelog(task: Task) -> None:
    task.state_manager.aim({"counts": 2})
    task.state_manager.restore("counts", [logged(0, 90, b"old", b"4"), logged(1, 91, b"new", b"1")], 2)
    task.run()
    store = task.stores["counts"]
    assert (store.get_timestamped(b"old"), store.get_timestamped(b"none")) == ((b"4", 90), None)
    late = ConsumerRecord("in", 3, 0, 80, b"old", b"", (), 0)
    assert task.process([late, *records(b"new")]) == [Output("out", b"old", b"5", 90), Output("out", b"new", b"2", 100)]
    assert {key: store.logged(one) for key, one in store.changes.items()} == {b"old": (b"5", 90), b"new": (b"2", 100)}
    store.put(b"old", None)
    store.put(b"new", b"0")
    assert [store.logged(one) for one in store.changes.values()] == [(None, None), (b"0", None)]


def test_changes_reach_disk_with_commit(task: Task) -> None:
    running(task).process(records(b"a", b"a", b"b"))
    assert (task.state_manager.changed, task.state_manager.disk.entries("counts")) == (True, 0)
    assert task.stores["counts"].changes == {b"a": row(b"2", 101), b"b": row(b"1", 102)}
    task.on_committed({"counts": [0, 1]}, transactional=True)
    assert not task.state_manager.changed
    assert dict(task.state_manager.disk.items("counts")) == {b"a": row(b"2", 101), b"b": row(b"1", 102)}
    assert dict(task.stores["counts"].items()) == {b"a": b"2", b"b": b"1"}
    assert task.state_manager.disk.checkpoint("counts") == 2


def test_abort_keeps_committed_state_and_rereads_changelog(task: Task) -> None:
    running(task).process(records(b"a"))
    task.on_committed({"counts": [0]}, transactional=True)
    task.process(records(b"a", b"b"))
    task.on_aborted()
    assert (task.state, task.state_manager.changed, task.state_manager.targets) == (State.CATCHING_UP, False, None)
    assert dict(task.stores["counts"].items()) == {b"a": b"1"}
    task.state_manager.aim({"counts": 4})
    assert not task.state_manager.restored
    task.state_manager.restore("counts", [], 4)
    assert task.state_manager.restored


def test_store_of_a_task_that_stops_to_run_is_up_to_date_then(task: Task) -> None:
    data = task.state_manager.disk.directory / DATA_FILE

    def stood_by() -> float:
        os.utime(data, (1000, 1000))
        task.stand_by()
        return data.stat().st_mtime

    assert stood_by() == 1000, "it has not caught up"
    running(task)
    assert stood_by() > 1000


def test_task_that_is_not_running_refuses_records(task: Task) -> None:
    with pytest.raises(AssertionError, match="catching up"):
        task.process(records(b"a"))


def test_uncommitted_changes_hide_values_on_disk(task: Task) -> None:
    store = running(task).stores["counts"]
    store.put(b"a", b"1")
    store.put(b"b", b"1")
    task.on_committed({"counts": [0, 1]}, transactional=False)
    store.put(b"a", None)
    store.put(b"c", b"1")
    assert store.get(b"a") is None
    assert dict(store.items()) == {b"b": b"1", b"c": b"1"}


@pytest.mark.parametrize(
    ("topic", "key", "value", "complaint"),
    [
        ("out", "text", b"", "the topic out takes keys and values as bytes, not the key 'text'"),
        ("out", None, "text", "the topic out takes keys and values as bytes, not the value 'text'"),
        ("", b"k", 1, "the store own takes keys and values as bytes, not the value 1"),
        ("", None, b"1", "the store own takes keys and values as bytes, not the key None"),
        ("", bytearray(b"k" * 200), None, r"not the key bytearray\(b'k*\.\.\."),
    ],
)
def test_what_is_not_bytes_fails_with_its_record_and_not_at_the_commit(
    topic: str, key: Any, value: Any, complaint: str
) -> None:
    def step(context: Context, _: bytes | None, __: Any, forward: Handler) -> None:
        if topic:
            context.emit(topic, key, value)
        else:
            context.store("own").put(key, value)

    topology = Topology()
    topology.stream("in").process(step, stores=["own"])
    with TopologyTestDriver(topology) as driver, pytest.raises(RecordFailed, match=f"in-0 at offset 0.*{complaint}"):
        driver.pipe("in", "k", b"")


def test_failed_record_leaves_no_changes(tmp_path: Path) -> None:
    """Neither in a store (with a value on disk, in memory, or none) nor in the output."""
    topology = Topology()

    def step(context: Context, key: bytes | None, value: bytes, forward: Handler) -> None:
        store = context.store("own")
        for name in (b"disk", b"memory", b"new"):
            store.put(name, value)
            store.put(name, value + b"!")
        forward(key, value)
        if value == b"bad":
            raise ValueError(value)

    topology.stream("in").process(step, stores=["own"]).to("out", value=BYTES)
    subtopology = topology.build("app").subtopologies[0]
    failures = Failures(processing_handler=SKIP)
    task = Task(
        TaskId(0, 3),
        "app",
        subtopology,
        TaskDisk(tmp_path, subtopology.stores),
        state=State.CATCHING_UP,
        failures=failures,
    )
    task.state_manager.aim({"own": 1})
    task.state_manager.restore("own", [logged(0, 90, b"disk", b"old")], 1)
    task.run()
    store = task.stores["own"]
    store.put(b"memory", b"older")

    def given(value: bytes) -> ConsumerRecord:
        return ConsumerRecord("in", 3, 7, 100, b"k", value, (), 0)

    assert task.process([given(b"bad")]) == []
    assert store.changes == {b"memory": b"older"}
    assert (store.get(b"disk"), store.get(b"new"), failures.dropped) == (b"old", None, 1)
    assert [output.value for output in task.process([given(b"a"), given(b"bad"), given(b"b")])] == [b"a", b"b"]
    assert {store.get(name) for name in (b"disk", b"memory", b"new")} == {b"b!"}
    task.close()


def test_store_with_misplaced_keys_accepts_no_more_after_resize(task: Task) -> None:
    lineage = Lineage(1, [(0, 4), (1, 5)])
    (elsewhere, *_) = [key for key in map(str.encode, "abcdefgh") if lineage.until(0).address(murmur2(key)) != 3]
    running(task).process(records(elsewhere), {"in": lineage.until(0)})
    assert task.state_manager.marks()[0].misplaced == f"in-3 at offset 0, key {elsewhere!r},"
    with pytest.raises(RecordFailed, match="MisplacedKey"):
        task.process(records(elsewhere), {"in": lineage})
    task.on_aborted()
    assert task.state_manager.marks()[0].misplaced == "", "it was not committed"


def test_prefix_scan_has_committed_and_new_keys_in_order(task: Task) -> None:
    store = running(task).stores["counts"]
    for key in (b"b", b"a1", b"a3", b"a", b"a\xff", b"c" + 600 * b"c"):
        store.put(key, b"old")
    task.on_committed({"counts": [0, 1, 2, 3, 4, 5]}, transactional=True)
    assert [key for key, _ in store.prefix_scan(b"c")] == [b"c" + 600 * b"c"]
    assert [key for key, _ in store.prefix_scan(b"a")] == [b"a", b"a1", b"a3", b"a\xff"]
    store.put(b"a2", b"new")
    store.put(b"a1", None)
    store.put(b"a3", b"new")
    assert list(store.prefix_scan(b"a")) == [(b"a", b"old"), (b"a2", b"new"), (b"a3", b"new"), (b"a\xff", b"old")]
    task.on_aborted()
    assert [key for key, _ in store.prefix_scan(b"a")] == [b"a", b"a1", b"a3", b"a\xff"]


def test_parts_of_a_record_are_undone_alone_and_with_it(task: Task) -> None:
    store = task.stores["counts"]
    store.put(b"k", b"before")
    store.begin()
    store.put(b"whole", b"1")
    store.begin_part()
    store.put(b"k", b"part")
    store.begin_part()
    store.put(b"k", b"inner")
    store.put(b"whole", b"2")
    store.undo_part()
    assert dict(store.items()) == {b"k": b"part", b"whole": b"1"}
    store.begin_part()
    store.put(b"new", b"1")
    store.keep_part()
    store.keep_part()
    assert dict(store.items()) == {b"k": b"part", b"whole": b"1", b"new": b"1"}
    store.undo()
    assert dict(store.items()) == {b"k": b"before"}
    assert len(store.changes) == 1


def test_prefix_scan_knows_undone_changes(task: Task) -> None:
    store = running(task).stores["counts"]
    store.put(b"a1", b"1")
    assert list(store.prefix_scan(b"a")) == [(b"a1", b"1")]
    store.begin()
    store.put(b"a1", b"2")
    store.put(b"a2", b"2")
    assert list(store.prefix_scan(b"a")) == [(b"a1", b"2"), (b"a2", b"2")]
    store.undo()
    store.keep()
    store.put(b"a3", b"3")
    assert list(store.prefix_scan(b"a")) == [(b"a1", b"1"), (b"a3", b"3")]


def test_prefix_scan_of_a_timestamped_store_has_values_alone(tmp_path: Path) -> None:
    disk = TaskDisk(tmp_path, ("rows",))
    disk.write(Write(changes={"rows": {b"a1": b"%8d" % 7 + b"old"}}))
    store = StateStore("rows", disk, timestamped=True)
    store.put(b"a2", b"new", 8)
    assert list(store.prefix_scan(b"a")) == [(b"a1", b"old"), (b"a2", b"new")]
    disk.close()
