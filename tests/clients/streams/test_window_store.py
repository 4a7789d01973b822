"""The windows of one task: values, closing order, sessions of a key, undo, and stream time over restarts."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from anabranch.clients.streams.sliding_window_store import SlidingWindowStore
from anabranch.clients.streams.state_store import StateStore
from anabranch.clients.streams.task_disk import TaskDisk, Write
from anabranch.clients.streams.window_store import WindowStore
from anabranch.clients.streams.windows import Session, SessionWindows, SlidingWindows, TimeWindows, Windowed, Windows


def opened(disk: TaskDisk, windows: Windows) -> tuple[StateStore, WindowStore]:
    store = StateStore("s", disk)
    kept = WindowStore(store, 3, windows)
    kept.load()
    return store, kept


def committed(disk: TaskDisk, store: StateStore) -> None:
    disk.write(Write(changes={"s": store.changes}, marks={"s": store.marks}))


def closed(kept: WindowStore) -> list[tuple[Windowed, bytes, int]]:
    return list(iter(kept.take_closed, None))


def indexed(kept: WindowStore) -> Collection[bytes]:
    """The keys in the index."""
    return kept._starts if isinstance(kept, SlidingWindowStore) else kept._by_key or ()


def test_windows_close_in_the_order_of_their_ends(disk: TaskDisk) -> None:
    _, kept = opened(disk, TimeWindows(10, grace_ms=5))
    for key, start_ms in ((b"b", 10), (b"a", 10), (b"a", 0), (b"a", 20)):
        kept.put(Windowed(key, start_ms, start_ms + 10), b"v", start_ms)
    assert kept.observe(14) == 14
    assert closed(kept) == []
    assert kept.observe(3) == 14, "stream time does not go back"
    kept.observe(25)
    assert [window for window, _, _ in closed(kept)] == [(b"a", 0, 10), (b"a", 10, 20), (b"b", 10, 20)]
    assert kept.get(Windowed(b"a", 10, 20)) is None
    assert kept.get(Windowed(b"a", 20, 30)) == (b"v", 20)


def test_sessions_that_end_together_close_in_the_order_of_their_starts(disk: TaskDisk) -> None:
    _, kept = opened(disk, SessionWindows(5))
    for one in (Session(b"a", 8, 9), Session(b"c", 3, 9), Session(b"b", 8, 9)):
        kept.put(one, b"v", 9)
    kept.observe(99)
    assert [window.key for window, _, _ in closed(kept)] == [b"c", b"a", b"b"]


def test_sessions_of_a_key_are_found_by_time(disk: TaskDisk) -> None:
    _, kept = opened(disk, SessionWindows(5))
    first, second, other = Session(b"k", 0, 3), Session(b"k", 20, 24), Session(b"kk", 2, 4)
    for one in (second, other, first):
        kept.put(one, b"v", one.end_ms)
    assert kept.sessions(b"k", 3, 13) == [first]
    assert kept.sessions(b"k", 4, 19) == []
    assert kept.sessions(b"k", 0, 99) == [first, second]
    kept.remove(first)
    assert kept.sessions(b"k", 0, 99) == [second]
    assert kept.sessions(b"unknown", 0, 99) == []


@pytest.mark.parametrize("windows", [TimeWindows(10), SessionWindows(5)], ids=["time windows", "sessions"])
def test_undone_record_leaves_windows_and_their_index_as_they_were(disk: TaskDisk, windows: Windows) -> None:
    store, kept = opened(disk, windows)
    make = Windowed if isinstance(windows, TimeWindows) else Session
    old, new = make(b"k", 0, 10), make(b"k", 30, 40)
    kept.put(old, b"old", 1)
    for _ in range(2):
        store.begin()
        kept.begin()
        kept.observe(90)
        kept.put(new, b"new", 30)
        kept.remove(old)
        assert [window for window, _, _ in closed(kept)] == [new]
        store.undo()
        kept.undo()
    assert kept.get(old) == (b"old", 1)
    assert kept.get(new) is None
    if make is Session:
        assert kept.sessions(b"k", 0, 99) == [old]
    assert closed(kept) == [], "stream time is what it was, too"
    kept.observe(90)
    assert [window for window, _, _ in closed(kept)] == [old]


def test_windows_and_stream_time_go_on_in_the_task_that_opens_the_store_next(disk: TaskDisk) -> None:
    store, kept = opened(disk, SessionWindows(5))
    kept.put(Session(b"k", 10, 12), b"v", 12)
    kept.observe(12)
    kept.note_time()
    committed(disk, store)
    _, again = opened(disk, SessionWindows(5))
    assert again.stream_time_ms == 12
    assert again.sessions(b"k", 0, 99) == [Session(b"k", 10, 12)]
    again.observe(18)
    assert closed(again) == [(Session(b"k", 10, 12), b"v", 12)]


def test_window_that_moved_away_is_not_closed_here(disk: TaskDisk) -> None:
    store, kept = opened(disk, TimeWindows(10))
    window = Windowed(b"k", 0, 10)
    kept.put(window, b"v", 1)
    store.put(kept.windows.store_key(window), None)  # a hand-over does this
    kept.observe(99)
    assert closed(kept) == []


@pytest.mark.parametrize("windows", [SlidingWindows(5), SessionWindows(5)], ids=["sliding windows", "sessions"])
def test_index_forgets_keys_whose_windows_have_closed_moved_away_or_were_undone(
    disk: TaskDisk, windows: SlidingWindows | SessionWindows
) -> None:
    store = StateStore("s", disk)
    kept: WindowStore
    if isinstance(windows, SlidingWindows):
        kept, make = SlidingWindowStore(store, 3, windows), Windowed
    else:
        kept, make = WindowStore(store, 3, windows), Session
    kept.load()
    closed_one, moved, undone = (make(key, 10, 15) for key in (b"closed", b"moved", b"undone"))
    for one in (closed_one, moved):
        kept.put(one, b"v", 12)
    store.put(windows.store_key(moved), None)
    store.begin()
    kept.begin()
    kept.put(undone, b"v", 12)
    store.undo()
    kept.undo()
    assert len(indexed(kept)) == 3
    kept.observe(99)
    assert [window for window, _, _ in closed(kept)] == [closed_one]
    assert not indexed(kept)
