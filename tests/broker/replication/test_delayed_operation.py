"""Delayed operations complete once, by their condition or deadline."""

from __future__ import annotations

import gc
import weakref

import pytest

from anabranch.broker.replication.delayed_operation import DelayedOperations


class Waiter:
    def __init__(self) -> None:
        self.satisfied = False
        self.finished = 0
        self.asked: list[str] = []

    def ready(self, key: str) -> bool:
        self.asked.append(key)
        return self.satisfied

    def finish(self) -> None:
        self.finished += 1


def test_operation_is_checked_for_the_changed_key_and_completes_once() -> None:
    room: DelayedOperations[str] = DelayedOperations()
    waiter = Waiter()
    room.add(("a", "b"), 10.0, waiter.ready, waiter.finish)

    assert room.check("other") == 0
    assert room.check("a") == 0
    assert waiter.asked == ["a"]
    waiter.satisfied = True
    assert room.check("b") == 1
    assert room.check("a") == 0, "a finished request watches no key any more"
    assert room.expire(99.0) == 0, "nor its deadline"
    assert waiter.finished == 1
    assert len(room) == 0


def test_deadlines_expire_in_order_and_next_deadline_is_known() -> None:
    room: DelayedOperations[str] = DelayedOperations()
    early, late, settled = Waiter(), Waiter(), Waiter()
    room.add("k", 20.0, late.ready, late.finish)
    room.add("k", 10.0, early.ready, early.finish)
    room.add("x", 5.0, settled.ready, settled.finish)
    settled.satisfied = True
    room.check("x")

    assert room.next_deadline == 10.0, "a finished request has no deadline"
    assert room.expire(9.9) == 0
    assert room.expire(10.0) == 1
    assert (early.finished, late.finished) == (1, 0)
    assert room.next_deadline == 20.0
    assert room.expire(20.0) == 1
    assert room.next_deadline is None
    assert settled.finished == 1


def test_discarded_operation_is_not_completed() -> None:
    room: DelayedOperations[str] = DelayedOperations()
    waiter = Waiter()
    waiter.satisfied = True
    parked = room.add("k", 10.0, waiter.ready, waiter.finish)
    room.discard(parked)
    room.discard(parked)

    assert room.check("k") == 0
    assert room.expire(11.0) == 0
    assert waiter.finished == 0
    assert len(room) == 0


def test_operation_added_during_completion_is_kept() -> None:
    room: DelayedOperations[str] = DelayedOperations()
    second = Waiter()
    room.add("k", 10.0, lambda _: True, lambda: room.add("k", 12.0, second.ready, second.finish) and None)

    assert room.check("k") == 1
    assert len(room) == 1
    second.satisfied = True
    assert room.check("k") == 1
    assert second.finished == 1


def test_finish_all_completes_every_operation() -> None:
    room: DelayedOperations[str] = DelayedOperations()
    waiters = [Waiter() for _ in range(100)]
    for waiter in waiters:
        room.add("k", 10.0, waiter.ready, waiter.finish)
    room.finish_all()
    assert [waiter.finished for waiter in waiters] == [1] * 100
    assert len(room) == 0


def test_deadlines_of_completed_operations_are_removed() -> None:
    room: DelayedOperations[str] = DelayedOperations()
    for _ in range(10_000):
        room.add("k", 30.0, lambda _: True, lambda: None)
        room.check("k")
    assert len(room._deadlines) < 1000


def test_pending_operation_can_watch_more_keys_and_be_completed() -> None:
    room: DelayedOperations[str] = DelayedOperations()
    waiter = Waiter()
    parked = room.add("a", 10.0, waiter.ready, waiter.finish)
    room.watch(parked, "b")
    assert (room.check("b"), waiter.asked) == (0, ["b"])
    for _ in range(2):
        room.finish(parked)
    assert (waiter.finished, len(room)) == (1, 0)
    room.watch(parked, "c")
    waiter.satisfied = True
    assert (room.check("b"), room.check("c")) == (0, 0), "who has gone watches nothing"


@pytest.mark.parametrize("how", ["finished", "expired", "discarded"])
def test_completed_operation_is_freed_without_the_garbage_collector(how: str) -> None:
    """A fetch that keeps its delayed operation would keep megabytes of records."""
    room: DelayedOperations[str] = DelayedOperations()
    waiter = Waiter()
    parked = room.add(("a",), 10.0, waiter.ready, waiter.finish)
    waiter.asked.append(parked)  # type: ignore[arg-type]
    if how == "finished":
        room.finish(parked)
    elif how == "expired":
        room.expire(11.0)
    else:
        room.discard(parked)
    waited = weakref.ref(waiter)
    gc.disable()
    try:
        del waiter, parked
        assert waited() is None
    finally:
        gc.enable()
