"""Stream time of a store never decreases, is stored as a mark, and moves with keys; changes of an index can be
undone.
"""

from __future__ import annotations

import pytest

from anabranch.clients.streams.changelog import observed_time, time_mark
from anabranch.clients.streams.state_store import StateStore
from anabranch.clients.streams.task_disk import TaskDisk, Write
from anabranch.clients.streams.timed_store import TimedStore


class Listed(TimedStore):
    """A store with a list as its index."""

    def add(self, rows: list[int], row: int) -> None:
        rows.append(row)
        self._later_undo(rows.pop)


def opened(disk: TaskDisk) -> tuple[StateStore, Listed]:
    store = StateStore("s", disk)
    kept = Listed(store, 3)
    kept.load()
    return store, kept


def test_stream_time_is_the_highest_of_its_own_and_those_that_came_with_keys(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    assert kept.stream_time_ms == -1
    kept.note_time()
    assert store.marks == {}, "there is no time yet"
    assert (kept.observe(12), kept.observe(3)) == (12, 12), "stream time does not go back"
    kept.note_time()
    store.marks.update([time_mark(7, 99)])
    assert observed_time(store.marks) == 99
    disk.write(Write(marks={"s": store.marks}))
    assert opened(disk)[1].stream_time_ms == 99


def test_record_without_a_timestamp_is_refused(disk: TaskDisk) -> None:
    _, kept = opened(disk)
    with pytest.raises(ValueError, match="its timestamp is -1"):
        kept.observe(-1)


def test_changes_of_the_index_since_begin_are_undone(disk: TaskDisk) -> None:
    _, kept = opened(disk)
    rows: list[int] = []
    kept.add(rows, 1)
    kept.begin()
    kept.add(rows, 2)
    kept.add(rows, 3)
    kept.undo()
    assert rows == [1]
    kept.undo()
    assert rows == [1]


def test_failed_record_does_not_advance_stream_time(disk: TaskDisk) -> None:
    _, kept = opened(disk)
    kept.observe(5)
    kept.begin()
    kept.observe(900)
    kept.undo()
    assert kept.stream_time_ms == 5
    kept.begin()
    kept.observe(7)
    kept.begin()
    kept.undo()
    assert kept.stream_time_ms == 7, "the record before did not fail"


def test_parts_of_a_record_are_undone_alone_and_with_it(disk: TaskDisk) -> None:
    _, kept = opened(disk)
    rows: list[int] = []
    kept.observe(1)
    kept.begin()
    kept.add(rows, 1)
    kept.observe(2)
    kept.begin_part()
    kept.add(rows, 2)
    kept.begin_part()
    kept.add(rows, 3)
    kept.observe(9)
    kept.undo_part()
    assert (rows, kept.stream_time_ms) == ([1, 2], 2)
    kept.observe(5)
    kept.keep_part()
    assert (rows, kept.stream_time_ms) == ([1, 2], 5)
    kept.undo()
    assert (rows, kept.stream_time_ms) == ([], 1)
