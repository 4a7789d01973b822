"""The records of one side of a join: found by key and time, expiry, undo, and their way to the next task."""

from __future__ import annotations

from anabranch.clients.streams.join_window_store import SUFFIX_BYTES, JoinWindowStore
from anabranch.clients.streams.state_store import StateStore
from anabranch.clients.streams.task_disk import TaskDisk, Write


def opened(disk: TaskDisk) -> tuple[StateStore, JoinWindowStore]:
    store = StateStore("s", disk)
    kept = JoinWindowStore(store, 3, retention_ms=10)
    kept.load()
    return store, kept


def test_records_of_a_key_are_found_from_one_time_to_another_oldest_first(disk: TaskDisk) -> None:
    _, kept = opened(disk)
    for timestamp_ms, value in ((7, b"c"), (5, b"a"), (5, b"b"), (9, b"d")):
        assert kept.put(b"k", value, timestamp_ms)
    kept.put(b"kk", b"other", 6)
    assert kept.fetch(b"k", 5, 7) == [(5, b"a"), (5, b"b"), (7, b"c")]
    assert kept.fetch(b"k", 6, 6) == []
    assert kept.fetch(b"unknown", 0, 99) == []


def test_record_expires_when_the_time_of_its_side_has_passed_it_by_the_retention_time(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    kept.put(b"k", b"a", 5)
    kept.put(b"k", b"b", 14)
    assert kept.fetch(b"k", 0, 99) == [(5, b"a"), (14, b"b")]
    kept.put(b"l", b"c", 15)
    assert kept.fetch(b"k", 0, 99) == [(14, b"b")]
    assert not kept.put(b"k", b"late", 5)
    assert [key[:-SUFFIX_BYTES] for key, _ in store.items()] == [b"k", b"l"]


def test_undone_record_leaves_the_index_as_it_was(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    kept.put(b"k", b"a", 5)
    for _ in range(2):
        store.begin()
        kept.begin()
        kept.put(b"k", b"undone", 5)
        store.undo()
        kept.undo()
    kept.put(b"k", b"b", 5)
    assert kept.fetch(b"k", 5, 5) == [(5, b"a"), (5, b"b")]
    kept.put(b"k", b"c", 50)
    assert [value for _, value in store.items()] == [b"c"]


def test_records_and_time_go_on_in_the_task_that_opens_the_store_next(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    for timestamp_ms, value in ((8, b"b"), (5, b"a"), (12, b"c")):
        kept.put(b"k", value, timestamp_ms)
    kept.note_time()
    disk.write(Write(changes={"s": store.changes}, marks={"s": store.marks}))
    _, again = opened(disk)
    assert again.stream_time_ms == 12
    assert again.fetch(b"k", 0, 99) == [(5, b"a"), (8, b"b"), (12, b"c")]


def test_record_that_moved_away_is_not_found(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    kept.put(b"k", b"a", 5)
    ((key, _),) = store.items()
    store.put(key, None)  # a hand-over does this
    assert kept.fetch(b"k", 0, 99) == []
