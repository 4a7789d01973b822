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
