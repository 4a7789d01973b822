"""Members with different subscriptions."""

from __future__ import annotations

from anabranch.broker.coordinators.consumer_groups.assignment import size
from anabranch.broker.coordinators.consumer_groups.uneven_subscriptions import assign_unevenly
from tests.broker.coordinators.consumer_groups.test_uniform_assignor import check, spec
from tests.broker.coordinators.consumer_groups.world import partitions


def test_member_with_one_topic_is_assigned_more_of_it() -> None:
    group = spec({"t": range(6), "u": range(6)}, {"ann": ["t"], "bob": ["t", "u"]})
    targets = assign_unevenly(group)
    check(group, targets)
    assert targets["ann"] == partitions(t=range(6)) and targets["bob"] == partitions(u=range(6))


def test_partitions_move_from_the_most_to_the_least_loaded_member() -> None:
    group = spec({"t": range(4), "u": range(2)}, {"ann": ["t", "u"], "bob": ["t"]}, {"ann": partitions(t=range(4))})
    targets = assign_unevenly(group)
    check(group, targets)
    assert targets == {"ann": partitions(t=[0], u=[0, 1]), "bob": partitions(t=[1, 2, 3])}


def test_members_receive_partitions_in_turn_once_they_are_the_least_loaded() -> None:
    """Least loaded are ann and bob at first, and all three after two partitions."""
    members = {"ann": ["t"], "bob": ["t"], "cyd": ["t", "u"]}
    group = spec({"t": range(5), "u": range(1)}, members, {"cyd": partitions(u=[0])})
    targets = assign_unevenly(group)
    assert targets == {"ann": partitions(t=[0, 2]), "bob": partitions(t=[1, 3]), "cyd": partitions(t=[4], u=[0])}


def test_members_give_partitions_in_turn_once_they_are_the_most_loaded() -> None:
    """Most loaded is ann at first, then ann and bob, who have the same load."""
    members = {"ann": ["t"], "bob": ["t"], "cyd": ["t", "u"], "dan": ["t", "u"]}
    before = {"ann": partitions(t=range(5)), "bob": partitions(t=range(5, 9))}
    group = spec({"t": range(9), "u": range(1)}, members, before)
    targets = assign_unevenly(group)
    assert {member: size(target) for member, target in targets.items()} == {"ann": 3, "bob": 3, "cyd": 2, "dan": 2}
    assert targets["ann"] == partitions(t=[0, 1, 2]) and targets["bob"] == partitions(t=[5, 6, 7])


def test_balanced_assignment_is_unchanged() -> None:
    before = {"ann": partitions(t=[0, 3]), "bob": partitions(t=[1], u=[0]), "cyd": partitions(t=[2], u=[1])}
    group = spec({"t": range(4), "u": range(2)}, {"ann": ["t"], "bob": ["t", "u"], "cyd": ["t", "u"]}, before)
    assert assign_unevenly(group) == before


def test_chained_subscriptions_terminate() -> None:
    members = {f"m{number}": [f"t{number}", f"t{number + 1}"] for number in range(5)}
    group = spec({f"t{number}": range(number * 3) for number in range(6)}, members)
    targets = assign_unevenly(group)
    check(group, targets)
    assert sorted(map(size, targets.values()))[-1] <= 15
