"""Contiguous ranges of each topic; equal indexes for equal subscriptions."""

from __future__ import annotations

from anabranch.broker.coordinators.consumer_groups.group_spec import AssignorMember, GroupSpec
from anabranch.broker.coordinators.consumer_groups.range_assignor import assign_ranges
from tests.broker.coordinators.consumer_groups.test_uniform_assignor import spec
from tests.broker.coordinators.consumer_groups.world import partitions, topic_id


def test_first_members_are_assigned_one_more_partition() -> None:
    targets = assign_ranges(spec({"t": range(5), "u": range(5)}, {"bob": ["t", "u"], "ann": ["t", "u"]}))
    assert targets == {
        "ann": partitions(t=[0, 1, 2], u=[0, 1, 2]),
        "bob": partitions(t=[3, 4], u=[3, 4]),
    }


def test_excess_members_are_assigned_nothing() -> None:
    targets = assign_ranges(spec({"t": [7]}, {"ann": ["t"], "bob": ["t"]}))
    assert targets == {"ann": partitions(t=[7]), "bob": {}}


def test_each_topic_is_divided_among_its_subscribers_without_stickiness() -> None:
    before = {"ann": partitions(t=[0, 1, 2, 3])}
    targets = assign_ranges(spec({"t": range(4), "u": range(3)}, {"ann": ["t"], "bob": ["t", "u"]}, before))
    assert targets == {"ann": partitions(t=[0, 1]), "bob": partitions(t=[2, 3], u=[0, 1, 2])}


def test_static_members_are_ordered_first_by_instance_id() -> None:
    topics = frozenset([topic_id("t")])
    group = GroupSpec(
        members={
            "a-dynamic": AssignorMember(topics=topics),
            "x-new-id": AssignorMember(topics=topics, instance_id="1"),
            "y-old-id": AssignorMember(topics=topics, instance_id="2"),
        },
        partitions={topic_id("t"): (0, 1, 2)},
    )
    targets = assign_ranges(group)
    assert targets == {"x-new-id": partitions(t=[0]), "y-old-id": partitions(t=[1]), "a-dynamic": partitions(t=[2])}
