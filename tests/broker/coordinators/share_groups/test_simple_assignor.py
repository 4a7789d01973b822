"""Readers are balanced over partitions, and stay where possible."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.coordinators.share_groups.simple_assignor import assign


def members(count: int) -> list[str]:
    return [f"m{number:02}" for number in range(count)]


def test_fewer_members_than_partitions_share_no_partition() -> None:
    assert assign(members(2), range(4), {}) == {"m00": frozenset({0, 1}), "m01": frozenset({2, 3})}


def test_more_members_than_partitions_share_partitions() -> None:
    given_ = assign(members(3), range(2), {})
    assert Counter(one for ones in given_.values() for one in ones) == {0: 2, 1: 2}
    assert all(given_[member] for member in members(3))


def test_no_members_or_no_partitions_yield_no_assignment() -> None:
    assert assign([], range(2), {}) == {}
    assert assign(members(2), [], {}) == {}


@given(count=st.integers(1, 12), partitions=st.integers(1, 12), after=st.integers(1, 12))
def test_assignment_stays_even_and_complete_when_membership_changes(count: int, partitions: int, after: int) -> None:
    before = assign(members(count), range(partitions), {})
    result = assign(members(after), range(partitions), before)
    readers = Counter(one for ones in result.values() for one in ones)
    sharing = -(-after // partitions)
    assert readers.keys() == set(range(partitions)), "every partition has a reader"
    assert max(readers.values()) <= sharing
    assert all(result.get(member) for member in members(after)), "every member has work"
    if after == count:
        assert result == before
