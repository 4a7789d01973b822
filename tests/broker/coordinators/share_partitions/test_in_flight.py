"""A stored change describes the state of each offset in as few batches as possible."""

from __future__ import annotations

from anabranch.broker.coordinators.share_partitions.in_flight import InFlight, RecordState, StateBatch, changes_of


def stretch(first: int, last: int, count: int, becomes: RecordState) -> InFlight:
    return InFlight(first, last, RecordState.ACQUIRED, count, (0, 99), "a", 100, becomes)


def test_split_range_keeps_its_state_in_both_parts() -> None:
    one = stretch(0, 9, 2, RecordState.AVAILABLE)
    rest = one.cut(4)
    assert ((one.first, one.last, one.count), (rest.first, rest.last, rest.count)) == ((0, 3, 4), (4, 9, 6))
    assert (rest.batch, rest.member, rest.delivery_count, rest.becomes) == ((0, 99), "a", 2, RecordState.AVAILABLE)


def test_range_being_persisted_is_neither_free_nor_held() -> None:
    one = InFlight(0, 9, RecordState.ACQUIRED, 1, (0, 9), "a", 100)
    assert (one.free, one.held) == (False, True)
    one.becomes = RecordState.AVAILABLE
    assert (one.free, one.held) == (False, False)


def test_adjacent_ranges_of_equal_state_are_stored_together() -> None:
    available, done = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED
    changing = [stretch(4, 5, 1, done), stretch(0, 1, 1, done), stretch(2, 3, 1, done), stretch(6, 6, 2, done)]
    changing += [stretch(7, 7, 2, available), stretch(9, 9, 2, available)]
    assert changes_of(changing) == [
        StateBatch(0, 5, done, 1),
        StateBatch(6, 6, done, 2),
        StateBatch(7, 7, available, 2),
        StateBatch(9, 9, available, 2),
    ]
