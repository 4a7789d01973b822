"""Helpers of several checkers: the format of a place, and views of a history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from anabranch.chaos.history import Delivery, History, OffsetsReset, Place

Checker = Callable[[History], Iterator[str]]
"""A function of the history: one line per violation, with details to find the place. At most O(n log n)."""


def at(place: Place, offset: int) -> str:
    """Format a record's place, the same in every line."""
    return f"{place[0]}-{place[1]}@{offset}"


def reset_events(history: History) -> Iterator[tuple[int, OffsetsReset]]:
    """Yield each reset that may have happened, at its request and at its response: it may undo a commit in between."""
    for one in history.resets:
        if one.outcome != "fail":
            yield one.order, one
            if one.answered_order >= 0:
                yield one.answered_order, one


def stored_offsets(history: History) -> dict[Place, list[int]]:
    """Return the offsets of each partition's stored records, including deleted ones; in order.

    Left out are records that were deleted without waiting for groups: no member has to receive those.
    """
    offsets: dict[Place, set[int]] = defaultdict(set)
    for record in history.stored:
        offsets[record.place].add(record.offset)
    for delivery in history.deliveries:
        if history.deleted(delivery.place, delivery.offset):
            offsets[delivery.place].add(delivery.offset)
    for send in history.sends:
        if send.outcome == "ok" and send.place is not None and history.deleted(send.place, send.offset):
            offsets[send.place].add(send.offset)
    return {place: _from(history.deleted_unread.get(place, 0), there) for place, there in offsets.items()}


def _from(start: int, offsets: set[int]) -> list[int]:
    return sorted(one for one in offsets if one >= start)


def first_deliveries(history: History) -> dict[tuple[Place, int], int]:
    """Return (place, offset) -> when the record was first delivered."""
    first: dict[tuple[Place, int], int] = {}
    for delivery in history.deliveries:
        first.setdefault((delivery.place, delivery.offset), delivery.order)
    return first


def was_removed_unread(history: History, delivery: Delivery) -> bool:
    """Whether a record was deleted unread, and its partition removed, before a member delivered what it had fetched.

    A removed partition closes no gate: records that are deleted before groups have read them lose their order (K705).
    """
    return is_gone_unread(history, delivery.place, delivery.offset, delivery.order)


def is_gone_unread(history: History, place: Place, offset: int, order: int) -> bool:
    """Whether an offset was deleted unread, and its partition removed, before a moment."""
    if offset >= history.deleted_unread.get(place, 0):
        return False
    gone = [one for one in history.resizes.retired if one.place == place and one.order < order]
    return any(offset < one.end_offset for one in gone)
