"""The records that have not been joined: which are taken when, their order, undo, and their way to the next task."""

from __future__ import annotations

from anabranch.clients.streams.outer_join_store import OuterJoinStore, Unjoined
from anabranch.clients.streams.state_store import StateStore
from anabranch.clients.streams.task_disk import TaskDisk, Write

LEFT, RIGHT = True, False


def opened(disk: TaskDisk, open_ms: tuple[int, int] = (10, 10)) -> tuple[StateStore, OuterJoinStore]:
    store = StateStore("s", disk)
    kept = OuterJoinStore(store, 3, open_ms)
    kept.load()
    return store, kept


def taken(kept: OuterJoinStore, stream_time_ms: int, *, is_left: bool = LEFT) -> list[bytes]:
    kept.observe(stream_time_ms)
    return [value for _, value in kept.take_closed(is_left=is_left)]


def test_closed_records_are_taken_once_by_time_side_key_and_number(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    for key, value, timestamp_ms, is_left in (
        (b"b", b"4", 5, LEFT),
        (b"a", b"2", 5, LEFT),
        (b"a", b"3", 5, LEFT),
        (b"c", b"1", 5, RIGHT),
        (b"a", b"0", 4, LEFT),
    ):
        kept.put(key, value, timestamp_ms, is_left=is_left)
    assert taken(kept, 14) == []
    assert taken(kept, 16) == [b"0", b"1", b"2", b"3", b"4"]
    assert taken(kept, 99) == []
    assert list(store.items()) == []


def test_joined_records_of_a_key_time_and_side_are_not_taken(disk: TaskDisk) -> None:
    _, kept = opened(disk)
    for value, timestamp_ms, is_left in ((b"1", 5, LEFT), (b"2", 5, LEFT), (b"3", 5, RIGHT), (b"4", 6, LEFT)):
        kept.put(b"k", value, timestamp_ms, is_left=is_left)
    kept.remove(b"k", 5, is_left=LEFT)
    kept.remove(b"unknown", 6, is_left=LEFT)
    assert taken(kept, 99) == [b"3", b"4"]


def test_sides_close_at_their_own_times(disk: TaskDisk) -> None:
    _, kept = opened(disk, (2, 20))
    kept.put(b"k", b"left", 5, is_left=LEFT)
    kept.put(b"k", b"right", 5, is_left=RIGHT)
    assert taken(kept, 8) == [], "a left record looks when the window of a left one is closed"
    assert taken(kept, 8, is_left=RIGHT) == [b"right"]
    assert taken(kept, 26) == [b"left"]


def test_search_begins_when_the_window_of_the_record_where_the_last_one_ended_is_closed(disk: TaskDisk) -> None:
    """As in Kafka Streams: with one side that ends at the newest record."""
    _, kept = opened(disk)
    for timestamp_ms in (0, 5, 9):
        kept.put(b"k", b"%d" % timestamp_ms, timestamp_ms, is_left=LEFT)
    assert taken(kept, 11) == [b"0"]
    assert taken(kept, 16) == []
    assert taken(kept, 20) == [b"5", b"9"]


def test_undone_record_leaves_the_index_as_it_was(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    kept.put(b"k", b"old", 5, is_left=LEFT)
    for _ in range(2):
        store.begin()
        kept.begin()
        kept.put(b"k", b"new", 2, is_left=RIGHT)
        kept.remove(b"k", 5, is_left=LEFT)
        kept.put(b"k", b"again", 5, is_left=LEFT)
        assert taken(kept, 99) == [b"new", b"again"]
        store.undo()
        kept.undo()
    assert taken(kept, 99) == [b"old"]


def test_records_and_stream_time_go_on_in_the_task_that_opens_the_store_next(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    kept.put(b"k", b"2", 8, is_left=LEFT)
    kept.put(b"k", b"1", 5, is_left=RIGHT)
    kept.observe(12)
    kept.note_time()
    disk.write(Write(changes={"s": store.changes}, marks={"s": store.marks}))
    _, again = opened(disk)
    assert again.stream_time_ms == 12
    assert taken(again, 16) == [b"1"]
    assert taken(again, 19) == [b"2"]


def test_record_that_moved_away_is_not_taken(disk: TaskDisk) -> None:
    store, kept = opened(disk)
    kept.put(b"k", b"v", 5, is_left=LEFT)
    store.put(Unjoined(5, LEFT, b"k").store_key, None)  # a hand-over does this
    assert taken(kept, 99) == []
