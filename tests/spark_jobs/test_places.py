"""Owners of a partition, and aborted repetitions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from anabranch.spark_jobs.places import Place
from anabranch.spark_jobs.verdict import REPEATED, TWO_OWNERS, Event


def by(incarnation: int, group_generation: int, offset: int, time_ms: int) -> Event:
    member = f"m{incarnation}"
    return Event("g", "t", 7, b"k", offset, 0, offset, 0, time_ms, 0, member, incarnation, group_generation)


def kinds(*events: Event, begin_numbers: Sequence[int] = ()) -> list[str]:
    """What is found; an event whose offset came up before is a repetition. The state is packed after each.

    `begin_numbers`: of each event, with which beginning of its member it was read; not known if it is not given.
    """
    place, seen, found = Place(), set[int](), []
    for event, begin_number in zip(events, begin_numbers or itertools.repeat(-1), strict=False):
        found += [one.kind for one in place.take(event, begin_number, again=event.offset in seen)]
        seen.add(event.offset)
        place = Place.of_json(place.as_json())
    return found


def test_successive_owners_are_no_violation() -> None:
    assert kinds(by(1, 1, 0, 10), by(2, 2, 1, 20), by(1, 3, 2, 30), by(3, 3, 3, 40)) == []


def test_owner_that_continues_after_its_replacement_is_a_second_owner() -> None:
    assert kinds(by(1, 1, 0, 10), by(2, 2, 1, 20), by(1, 1, 2, 30), by(1, 1, 3, 40)) == [TWO_OWNERS]


def test_clean_hand_over_is_no_violation_under_clock_skew() -> None:
    """The older owner's events are stored before the younger one begins."""
    ahead = [by(1, 1, offset, 1050 + offset) for offset in range(3)]
    assert kinds(*ahead, *(by(2, 2, offset, 1020 + offset) for offset in range(3, 6))) == []
    behind = [by(1, 1, offset, 950 + offset) for offset in range(3)]
    assert kinds(*behind, *(by(2, 2, offset, 1020 + offset) for offset in range(3, 6))) == []
    assert kinds(*ahead, by(2, 2, 3, 1023), by(1, 1, 3, 1060), by(2, 2, 4, 1024)) == [TWO_OWNERS]


def test_static_member_restarted_on_another_machine_is_no_second_owner() -> None:
    assert kinds(by(1, 1, 0, 1050), by(1, 1, 1, 1060), by(2, 1, 2, 1030), by(2, 1, 3, 1055), by(2, 1, 4, 1070)) == []
    late = by(1, 1, 1, 1010)
    assert kinds(by(2, 1, 0, 1020), by(2, 1, 1, 1030), late, by(2, 1, 2, 1040)) == []


def test_alternating_owners_of_one_generation_are_two_owners() -> None:
    assert kinds(by(1, 1, 0, 10), by(2, 1, 0, 11), by(1, 1, 1, 12)) == [TWO_OWNERS]


def test_restarted_static_member_keeps_its_generation() -> None:
    assert kinds(by(1, 1, 0, 10), by(2, 1, 0, 11), by(2, 1, 1, 12)) == []


def test_owner_with_late_events_is_no_second_owner() -> None:
    assert kinds(by(1, 1, 0, 10), by(2, 2, 1, 20), by(1, 1, 1, 15), by(2, 2, 2, 30)) == []


def test_owners_without_generations_are_not_judged() -> None:
    assert kinds(by(1, -1, 0, 10), by(2, -1, 1, 20), by(1, -1, 2, 30)) == []


def test_redelivery_must_reach_the_last_delivered_offset() -> None:
    first = [by(1, 1, offset, offset) for offset in range(4)]
    assert kinds(*first, *(by(2, 2, offset, 10 + offset) for offset in range(1, 6))) == []
    assert kinds(*first, by(2, 2, 1, 10), by(3, 3, 0, 11), *(by(3, 3, n, 12 + n) for n in range(1, 5))) == []
    assert kinds(*first, by(1, 1, 1, 10), by(1, 1, 4, 11)) == [REPEATED]
    assert kinds(*first, by(1, 1, 3, 10), by(1, 1, 4, 11)) == [], "nothing came after it"


def test_second_delivery_by_a_member_without_rewind_is_repeated() -> None:
    first = [by(1, 1, offset, offset) for offset in range(3)]
    again = by(1, 1, 2, 10)
    assert kinds(*first, again, by(1, 1, 3, 11), begin_numbers=[0] * 5) == [REPEATED]
    assert kinds(*first, again, again, begin_numbers=[0] * 5) == [REPEATED, REPEATED], "each time"
    assert kinds(*first, by(1, 1, 1, 9), again, by(1, 1, 3, 11), begin_numbers=[0] * 6) == [REPEATED, REPEATED], (
        "and each once"
    )
    assert kinds(*first, again, by(1, 1, 3, 11), begin_numbers=[0, 0, 0, 1, 1]) == [], "it went back"
    assert kinds(*first, by(2, 2, 2, 10), by(2, 2, 3, 11), begin_numbers=[0] * 5) == [], (
        "the next owner begins at the commit"
    )
    assert kinds(*first, by(1, 2, 2, 10), by(1, 2, 3, 11), begin_numbers=[0] * 5) == [], (
        "it was given the partition anew"
    )
    assert kinds(*first, again) == [], "nobody counted"


def test_incomplete_redelivery_by_later_owner_is_repeated_under_clock_skew() -> None:
    first = [by(1, 1, offset, 1050 + offset) for offset in range(4)]
    assert kinds(*first, by(2, 2, 1, 1020), by(2, 2, 4, 1021)) == [REPEATED]


def test_fast_path_leaves_same_state_as_full_check() -> None:
    events = [by(1, 1, offset, offset) for offset in range(5)]
    slow, fast = Place(), Place()
    for event in events:
        slow.take(event, 3, again=False)
    fast.take(events[0], 3, again=False)
    assert fast.plain(events[1])
    fast.extend(events[-1], 3)
    assert fast.as_json() == slow.as_json()
    assert not fast.plain(events[2])
    assert not fast.plain(by(2, 2, 9, 9))
