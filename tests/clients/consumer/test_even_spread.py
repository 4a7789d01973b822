"""Balanced and sticky assignments with one owner, for any members, topics and histories."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clients.consumer.assignors import assign_cooperatively
from anabranch.clients.consumer.consumer_partition_assignor import MemberView, TopicView
from anabranch.clients.consumer.even_spread import Spread, last_owners
from anabranch.protocol.topic_partition import TopicPartition

Assigned = dict[str, set[TopicPartition]]
TOPICS = ("t", "u", "v")


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[list[MemberView], list[TopicPartition]]:
    """Members that want some of three topics, and have had something of them."""
    todo = [TopicPartition(name, index) for name in TOPICS for index in range(draw(st.integers(0, 12)))]
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True))
    members = []
    owner_of = {one: draw(st.sampled_from([*names, ""])) for one in todo}
    for name in names:
        topics = TOPICS if alike else draw(st.lists(st.sampled_from(TOPICS), min_size=1, unique=True))
        owned = tuple(one for one in todo if owner_of[one] == name)
        members.append(MemberView(name, tuple(topics), owned, generation=1))
    return members, todo


def spread(members: list[MemberView], todo: list[TopicPartition]) -> Assigned:
    found: Assigned = {member.member_id: set() for member in members}
    for partition, member_id in Spread(members, todo).run(last_owners(members), lambda partition: ()):
        found[member_id].add(partition)
    return found


def again(members: list[MemberView], assigned: Assigned) -> list[MemberView]:
    """The same members when they join with what they were given."""
    return [MemberView(one.member_id, one.topics, tuple(assigned[one.member_id]), generation=2) for one in members]


@given(groups())
def test_partitions_are_assigned_once_and_balance_cannot_be_improved(
    group: tuple[list[MemberView], list[TopicPartition]],
) -> None:
    members, todo = group
    found = spread(members, todo)
    wanted = {topic for member in members for topic in member.topics}
    given_out = Counter(one for partitions in found.values() for one in partitions)
    assert given_out == Counter(one for one in todo if one.topic in wanted)
    for member in members:
        assert {one.topic for one in found[member.member_id]} <= set(member.topics)
        for other in members:
            if len(found[other.member_id]) >= len(found[member.member_id]) + 2:
                assert not {one.topic for one in found[other.member_id]} & set(member.topics)


@given(groups())
def test_balanced_assignment_is_kept(group: tuple[list[MemberView], list[TopicPartition]]) -> None:
    members, todo = group
    first = spread(members, todo)
    assert spread(again(members, first), todo) == first


@given(groups(alike=True))
def test_balancing_moves_minimum_of_partitions(group: tuple[list[MemberView], list[TopicPartition]]) -> None:
    """Members keep their partitions up to their share."""
    members, todo = group
    found = spread(members, todo)
    each, extra = divmod(len(todo), len(members))
    had = sorted((len(one.owned) for one in members), reverse=True)
    kept_at_best = sum(min(count, each + (place < extra)) for place, count in enumerate(had))
    assert sum(len(found[one.member_id] & set(one.owned)) for one in members) == kept_at_best


@given(st.data())
def test_moved_partition_is_never_read_by_two_members(data: st.DataObject) -> None:
    """Members join with their partitions, revoke as told, and join again."""
    topics = {name: TopicView(name, tuple(range(data.draw(st.integers(0, 8))))) for name in TOPICS}
    everything = {TopicPartition(name, index) for name, view in topics.items() for index in view.partitions}
    reads: Assigned = {}
    for _ in range(data.draw(st.integers(1, 6))):
        present = data.draw(st.lists(st.sampled_from("abcde"), min_size=1, unique=True))
        reads = {name: reads.get(name, set()) for name in present}
        for _ in range(4):
            members = [MemberView(name, TOPICS, tuple(sorted(reads[name])), generation=1) for name in present]
            assigned = {name: set(given) for name, given in assign_cooperatively(members, topics).items()}
            for name, partitions in assigned.items():
                others = [reads[other] | assigned[other] for other in present if other != name]
                assert not [one for other in others for one in partitions & other], "read by two"
            revoked = [one for name in present for one in reads[name] - assigned[name]]
            reads = assigned
            if not revoked:
                break
        else:
            pytest.fail("it does not come to rest")
        assert set().union(*reads.values()) == everything
        sizes = sorted(map(len, reads.values()))
        assert sizes[-1] - sizes[0] <= 1


def test_later_claim_of_partition_wins_and_equal_claims_cancel() -> None:
    where = TopicPartition("t", 0)
    old, new = MemberView("a", ("t",), (where,), generation=4), MemberView("b", ("t",), (where,), generation=5)
    assert last_owners([old, new]) == last_owners([new, old]) == {where: "b"}
    assert last_owners([old, MemberView("b", ("t",), (where,), generation=4)]) == {}


def test_members_joining_one_owner_are_balanced_at_once() -> None:
    """10,000 partitions over 500 members: the surplus is revoked at once."""
    todo = [TopicPartition("t", index) for index in range(10_000)]
    members = [MemberView(f"m{number:03}", ("t",), tuple(todo) if number == 0 else ()) for number in range(500)]
    found = spread(members, todo)
    assert {len(partitions) for partitions in found.values()} == {20}
    sizes = [len(spread(members[:count], todo)["m000"]) for count in (1, 2, 10)]
    assert all(after < before for before, after in pairwise(sizes))


class Counted(TopicPartition):
    """A partition that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: tuple[object, ...]) -> bool:
        Counted.compared += 1
        return tuple(self) < tuple(other)


def test_many_partitions_of_one_member_move_without_sorting_them_for_each() -> None:
    """The leader's loop waits for the assignor: its heartbeats would come too late."""
    todo = [Counted("t", index) for index in range(400)] + [Counted("u", index) for index in range(4)]
    members = [MemberView("a", ("t", "u"), tuple(todo), generation=1)]
    members += [MemberView(name, ("t",)) for name in "bcde"]
    Counted.compared = 0
    found = spread(members, list(todo))
    assert sorted(map(len, found.values())) == [80, 81, 81, 81, 81]
    assert Counted.compared < 20 * len(todo), "not the square of their number"
