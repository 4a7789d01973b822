"""The sliding windows of one task: found by start, kept after they have closed, and handed on once."""

from __future__ import annotations

from anabranch.clients.streams.sliding_window_store import KeptWindow, SlidingWindowStore
from anabranch.clients.streams.state_store import StateStore
from anabranch.clients.streams.task_disk import TaskDisk, Write
from anabranch.clients.streams.windows import SlidingWindows, Windowed

TEN = SlidingWindows(10, grace_ms=5)


def opened(disk: TaskDisk, *, results_at_close: bool = True) -> tuple[StateStore, SlidingWindowStore]:
    store = StateStore("s", disk)
    kept = SlidingWindowStore(store, 3, TEN, results_at_close=results_at_close)
    kept.load()
    return store, kept


def committed(disk: TaskDisk, store: StateStore, kept: SlidingWindowStore) -> None:
    kept.note_time()
    disk.write(Write(changes={"s": store.changes}, marks={"s": store.marks}))


def put(kept: SlidingWindowStore, *starts_ms: int, key: bytes = b"k") -> None:
    for start_ms in starts_ms:
        kept.put(TEN.starting(key, start_ms), b"v%d" % start_ms, start_ms + 4)


def closed(kept: SlidingWindowStore) -> list[tuple[Windowed, bytes, int]]:
    return list(iter(kept.take_closed, None))


def test_windows_of_a_key_are_found_by_start_the_last_one_first(disk: TaskDisk) -> None:
    _, kept = opened(disk)
    put(kept, 7, 3, 20, 3)
    put(kept, 5, key=b"kk")
    assert kept.starting(b"k", 3, 19) == [KeptWindow(7, b"v7", 11), KeptWindow(3, b"v3", 7)]
    assert kept.starting(b"k", 4, 6) == []
    assert kept.starting(b"unknown", 0, 99) == []


def test_window_is_kept_for_a_difference_after_it_has_closed(disk: TaskDisk) -> None:
    _, kept = opened(disk)
    put(kept, 0)
    kept.observe(15)
    assert closed(kept) == []
    kept.observe(16)
    assert closed(kept) == [(Windowed(b"k", 0, 10), b"v0", 4)]
    kept.observe(26)
    assert closed(kept) == []
    assert kept.starting(b"k", 0, 0) == [KeptWindow(0, b"v0", 4)], "its timestamp is that of its records"
    kept.observe(27)
    assert closed(kept) == []
    assert kept.starting(b"k", 0, 0) == []


def test_window_without_a_result_at_its_close_is_removed_when_nothing_is_made_of_it(disk: TaskDisk) -> None:
    store, kept = opened(disk, results_at_close=False)
    put(kept, 0)
    rows = dict(store.changes)
    kept.observe(26)
    assert closed(kept) == []
    assert store.changes == rows, "nothing is written for it"
    kept.observe(27)
    closed(kept)
    assert kept.starting(b"k", 0, 0) == []


def test_result_is_not_repeated_in_the_task_that_opens_the_store_next(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    put(kept, 0, 8)
    kept.observe(16)
    assert len(closed(kept)) == 1
    committed(disk, store, kept)
    _, again = opened(disk)
    assert closed(again) == []
    assert [window.start_ms for window in again.starting(b"k", 0, 99)] == [8, 0]
    again.observe(24)
    assert closed(again) == [(Windowed(b"k", 8, 18), b"v8", 12)]


def test_window_that_comes_closed_from_another_task_has_its_result(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    put(kept, 0)  # a lagging partition has it; stream time here is another one's
    kept.observe(99)
    committed(disk, store, kept)
    _, again = opened(disk)
    assert closed(again) == [(Windowed(b"k", 0, 10), b"v0", 4)]
    assert again.starting(b"k", 0, 99) == []


def test_undone_record_leaves_windows_and_their_index_as_they_were(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    put(kept, 0, 3)
    for _ in range(2):
        store.begin()
        kept.begin()
        kept.observe(28)
        put(kept, 30)
        assert len(closed(kept)) == 2
        assert [window.start_ms for window in kept.starting(b"k", 0, 99)] == [30, 3]
        store.undo()
        kept.undo()
        assert [window.start_ms for window in kept.starting(b"k", 0, 99)] == [3, 0]
    assert closed(kept) == [], "stream time is what it was, too"
    kept.observe(28)
    assert [window.start_ms for window, _, _ in closed(kept)] == [0, 3]
