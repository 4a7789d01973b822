"""Queries of checkers on a history."""

from __future__ import annotations

from anabranch.chaos.checkers.shared import at, first_deliveries, stored_offsets, was_removed_unread
from anabranch.chaos.history import Delivery, History, Send, Stored
from anabranch.chaos.resize_events import Retired
from tests.chaos.checkers.story import P, Q


def delivery(order: int, offset: int) -> Delivery:
    return Delivery(order, "c", 0, P, offset, "k", "v", generation=0, group_generation=1)


def test_partition_and_offset_are_formatted() -> None:
    assert at(("t", 3), 7) == "t-3@7"


def test_stored_offsets_are_sorted_unique_and_exclude_deleted_records() -> None:
    history = History(stored=[Stored(P, 4, 1, "k", "v"), Stored(Q, 0, 1, "k", "v"), Stored(P, 2, 1, "k", "v")])
    history.deliveries = [delivery(0, 2), delivery(1, 9)]
    history.sends = [Send(0, "p", "k", 0, "v", outcome="ok", place=P, offset=8), Send(1, "p", "k", 1, "w")]
    assert stored_offsets(history) == {P: [2, 4], Q: [0]}, "nothing was deleted"
    history.log_starts[P] = 10
    history.note_deletion(P, 9)
    assert stored_offsets(history) == {P: [2, 4, 8], Q: [0]}, "what was acknowledged and deleted stood there, too"
    history.note_deletion(P, 10)
    assert stored_offsets(history) == {P: [2, 4, 8, 9], Q: [0]}
    history.note_deletion(P, 8, only_read=False)
    assert stored_offsets(history) == {P: [8, 9], Q: [0]}, "what was deleted unread has to be given to nobody"


def test_first_delivery_of_each_record_counts() -> None:
    history = History(deliveries=[delivery(3, 0), delivery(5, 1), delivery(8, 0)])
    assert first_deliveries(history) == {(P, 0): 3, (P, 1): 5}


def test_record_in_partition_removed_after_unread_deletion_was_removed_unread() -> None:
    history = History()
    history.resizes.retired.append(Retired(4, P, 1, 10, 1, True, {}))
    history.note_deletion(P, 10)
    assert not was_removed_unread(history, delivery(5, 9)), "groups had read it"
    history.note_deletion(P, 9, only_read=False)
    assert not was_removed_unread(history, delivery(5, 9))
    assert was_removed_unread(history, delivery(5, 8))
    assert not was_removed_unread(history, delivery(3, 8)), "the partition was there"
    history.note_deletion(P, 12, only_read=False)
    assert not was_removed_unread(history, delivery(5, 11)), "it is one of the next life of the index"
