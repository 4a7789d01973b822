"""The queue of deadlines of the timer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.coordinators.runtime.deadlines import Deadlines


def test_earliest_deadline_is_popped_first() -> None:
    deadlines: Deadlines[str] = Deadlines()
    assert deadlines.first() is None
    deadlines.set("a", 30)
    deadlines.set("b", 20)
    deadlines.set("c", None)
    assert deadlines.first() == 20
    assert deadlines.pop_due(19) == []
    assert deadlines.pop_due(30) == ["b", "a"]
    assert deadlines.first() is None


def test_earlier_deadline_replaces_a_later_one() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 30)
    deadlines.set("a", 10)
    deadlines.set("a", 50)
    assert deadlines.pop_due(40) == ["a"], "one look, however often it was set"
    deadlines.set("a", 50)
    assert deadlines.first() == 50
    deadlines.forget("a")
    assert deadlines.first() is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50))), st.integers(0, 60))
def test_random_deadlines_are_popped_when_due(script: list[tuple[int, int]], now: int) -> None:
    deadlines: Deadlines[int] = Deadlines()
    earliest: dict[int, int] = {}
    for key, due in script:
        deadlines.set(key, due)
        earliest[key] = min(due, earliest.get(key, due))
    due_now = deadlines.pop_due(now)
    assert sorted(due_now) == sorted(key for key, due in earliest.items() if due <= now)
    assert [earliest[key] for key in due_now] == sorted(earliest[key] for key in due_now)
