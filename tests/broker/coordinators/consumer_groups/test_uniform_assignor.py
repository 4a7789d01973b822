"""Assignments are balanced and sticky: examples, and arbitrary groups."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from anabranch.broker.coordinators.consumer_groups.assignment import Assignment, each, size
from anabranch.broker.coordinators.consumer_groups.group_spec import AssignorMember, GroupSpec
from anabranch.broker.coordinators.consumer_groups.uniform_assignor import assign_evenly, assign_uniformly
from tests.broker.coordinators.consumer_groups.world import partitions, topic_id


def spec(
    topics: Mapping[str, Iterable[int]], members: Mapping[str, Iterable[str]], targets: Mapping[str, Assignment] = {}
) -> GroupSpec:
    """`spec({"t": range(6)}, {"ann": ["t"]}, {"ann": partitions(t=[0])})`."""
    return GroupSpec(
        members={
            name: AssignorMember(topics=frozenset(map(topic_id, subscribed)), target=targets.get(name, {}))
            for name, subscribed in sorted(members.items())
        },
        partitions={topic_id(name): tuple(indexes) for name, indexes in topics.items()},
    )


def test_last_new_members_are_assigned_one_more_partition() -> None:
    targets = assign_evenly(spec({"t": range(5)}, {"ann": ["t"], "bob": ["t"], "cyd": ["t"]}))
    assert targets == {"ann": partitions(t=[0]), "bob": partitions(t=[1, 2]), "cyd": partitions(t=[3, 4])}


def test_new_member_is_assigned_the_excess_of_others() -> None:
    before = {"ann": partitions(t=[0, 1, 2]), "bob": partitions(t=[3, 4, 5])}
    targets = assign_evenly(spec({"t": range(6)}, {"ann": ["t"], "bob": ["t"], "cyd": ["t"]}, before))
    assert targets == {"ann": partitions(t=[0, 1]), "bob": partitions(t=[3, 4]), "cyd": partitions(t=[2, 5])}


def test_partitions_of_a_removed_member_are_spread_evenly() -> None:
    before = {"ann": partitions(t=[0, 1]), "bob": partitions(t=[2, 3])}
    targets = assign_evenly(spec({"t": range(6)}, {"ann": ["t"], "bob": ["t"]}, before))
    assert targets == {"ann": partitions(t=[0, 1, 4]), "bob": partitions(t=[2, 3, 5])}


def test_partitions_no_longer_assignable_are_removed_and_others_kept() -> None:
    before = {"ann": partitions(t=[0, 1], gone=[0]), "bob": partitions(t=[2, 3])}
    targets = assign_evenly(spec({"t": (0, 2, 3)}, {"ann": ["t"], "bob": ["t"]}, before))
    assert targets == {"ann": partitions(t=[0]), "bob": partitions(t=[2, 3])}


def test_member_with_one_more_partition_keeps_it() -> None:
    before = {"bob": partitions(t=[0, 1]), "cyd": partitions(t=[2])}
    targets = assign_evenly(spec({"t": range(4)}, {"ann": ["t"], "bob": ["t"], "cyd": ["t"]}, before))
    assert targets == {"ann": partitions(t=[3]), **before}


def test_one_more_partition_is_kept_by_as_many_members_as_may_have_it() -> None:
    before = {"ann": partitions(t=[0, 1]), "bob": partitions(t=[2, 3])}
    targets = assign_evenly(spec({"t": range(4)}, {"ann": ["t"], "bob": ["t"], "cyd": ["t"]}, before))
    assert targets == {"ann": partitions(t=[0, 1]), "bob": partitions(t=[2]), "cyd": partitions(t=[3])}


def test_child_partition_is_assigned_to_the_owner_of_its_parent_within_balance() -> None:
    before = {"ann": partitions(t=[1]), "bob": partitions(t=[0])}
    plain = spec({"t": range(4)}, {"ann": ["t"], "bob": ["t"]}, before)
    assert assign_evenly(plain) == {"ann": partitions(t=[1, 2]), "bob": partitions(t=[0, 3])}
    resized = dataclasses.replace(plain, parents={topic_id("t"): {2: 0, 3: 1}})
    assert assign_evenly(resized) == {"ann": partitions(t=[1, 3]), "bob": partitions(t=[0, 2])}
    crowded = dataclasses.replace(plain, parents={topic_id("t"): {2: 0, 3: 2}})
    assert assign_evenly(crowded) == {"ann": partitions(t=[1, 3]), "bob": partitions(t=[0, 2])}, "balance comes first"


def test_empty_group_and_empty_subscriptions_are_assigned_nothing() -> None:
    assert assign_uniformly(spec({}, {})) == {}
    assert assign_uniformly(spec({}, {"ann": []})) == {"ann": {}}


names = st.sampled_from(["ann", "bob", "cyd", "dee", "eve"])
topics = st.dictionaries(st.sampled_from("tuvw"), st.sets(st.integers(0, 9), max_size=8).map(sorted), max_size=4)


@st.composite
def groups(draw: st.DrawFn, *, alike: bool) -> GroupSpec:
    """A group after another life of it: its targets are what was assigned for other topics and subscriptions."""
    known = draw(topics)
    members = draw(st.sets(names, min_size=1))
    subscription = st.sets(st.sampled_from(sorted(known))) if known else st.just(set())
    one = draw(subscription)
    before = spec(draw(topics), dict.fromkeys(draw(st.sets(names, min_size=1)), "tuvw"))
    before = GroupSpec(
        members={
            name: AssignorMember(topics=member.topics.intersection(before.partitions))
            for name, member in before.members.items()
        },
        partitions=before.partitions,
    )
    return spec(known, {name: one if alike else draw(subscription) for name in members}, assign_uniformly(before))


def check(group: GroupSpec, targets: Mapping[str, Assignment]) -> None:
    """Each assignable partition has one owner, which subscribes to it."""
    subscribed = set().union(*(member.topics for member in group.members.values()))
    given_out = Counter(one for target in targets.values() for one in each(target))
    assert given_out == Counter((topic, index) for topic in subscribed for index in group.partitions[topic])
    assert targets.keys() == group.members.keys()
    for name, target in targets.items():
        assert target.keys() <= group.members[name].topics and frozenset() not in target.values()


@given(groups(alike=True))
def test_random_group_with_equal_subscriptions_is_balanced(group: GroupSpec) -> None:
    targets = assign_uniformly(group)
    check(group, targets)
    loads = [size(target) for target in targets.values()]
    assert max(loads) - min(loads) <= 1
    for name, member in group.members.items():  # who has less than its share gives nothing away
        kept = group.retained_assignment(member)
        if size(kept) <= min(loads):
            assert all(kept[topic] <= targets[name].get(topic, frozenset()) for topic in kept)
    again = GroupSpec(
        members={
            name: AssignorMember(topics=member.topics, target=targets[name]) for name, member in group.members.items()
        },
        partitions=group.partitions,
    )
    assert assign_uniformly(again) == targets


@given(groups(alike=False))
def test_random_group_with_different_subscriptions_is_assigned_completely(group: GroupSpec) -> None:
    check(group, assign_uniformly(group))
